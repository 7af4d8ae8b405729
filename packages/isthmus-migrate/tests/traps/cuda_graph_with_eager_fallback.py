"""The guard stands in front of CUDA graph capture, and the eager fallback must give the same numbers."""

# answer: [1.0, 3.0, 5.0, 7.0]
# answer: [10.0, 12.0, 14.0, 16.0]
# answer: host [1.0, 3.0, 5.0, 7.0]
import torch


def make_runner(fn, example):
    """A callable that replays a graph of fn if one can be captured, else fn itself."""
    if example.device.type != "cuda":
        return fn
    static_in = example.clone()
    try:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                fn(static_in)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            static_out = fn(static_in)
    except (RuntimeError, AttributeError, NotImplementedError):
        return fn

    def replay(x):
        static_in.copy_(x)
        graph.replay()
        return static_out.clone()

    return replay


def affine(x):
    return x * 2 + 1


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
x = torch.arange(4, dtype=torch.float32, device=device)
run = make_runner(affine, torch.full_like(x, -1))
first, second = run(x), run(x + 4.5)
print(first.tolist())
print(second.tolist())
print("host", make_runner(affine, x.cpu())(x.cpu()).tolist())
