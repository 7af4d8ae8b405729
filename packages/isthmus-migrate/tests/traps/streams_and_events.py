"""Streams and events are made with arguments, waited on in both directions and asked about time."""

# answer: True False
# answer: True
# answer: True 64.0
# answer: True
# answer: True
# answer: True
import torch

main = torch.cuda.current_stream()
side = torch.cuda.Stream(device=0, priority=-1)
start = torch.cuda.Event(enable_timing=True)
stop = torch.cuda.Event(enable_timing=True, blocking=False)
done = torch.cuda.Event()

x = torch.ones(8, 8, device="cuda")
side.wait_stream(main)
with torch.cuda.stream(side):
    print(torch.cuda.current_stream() == side, torch.cuda.current_stream() == main)
    start.record()
    y = x * 2
    x.record_stream(side)
    stop.record(side)
    done.record(torch.cuda.current_stream())
print(torch.cuda.current_stream() == torch.cuda.default_stream())
main.wait_event(done)
z = y - x
torch.cuda.synchronize()
print(z.is_cuda, z.sum().item())
print(done.query() and side.query())
print(0.0 <= start.elapsed_time(stop) < 60000.0)
with torch.cuda.stream(None):
    print(torch.cuda.current_stream() == main)
