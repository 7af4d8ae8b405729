"""One class uses cuda() and to() for source code it prints, another really moves; both are called the same way."""

# answer: __global__
# answer: kernel.cu
# answer: 2
# answer: True True
# answer: True
import torch


class Exporter:
    suffix = {"cuda": "cu", "opencl": "cl"}

    def cuda(self, name="k"):
        return f"__global__ void {name}() {{}}"

    def to(self, language):
        return "kernel." + self.suffix[language]


class Boxes:
    def __init__(self, box, moves=0):
        self.box, self.moves = box, moves
    def to(self, device):
        return Boxes(self.box.to(device), self.moves + 1)
    def cuda(self):
        return self.to("cuda")


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(1, 1)
        self.anchors = torch.ones(2)  # not a buffer, so cuda() has to bring it along

    def cuda(self, device=None):
        self.anchors = self.anchors.cuda(device)
        return super().cuda(device)


print(Exporter().cuda().split()[0], Exporter().to("cuda"), sep="\n")
print(Boxes(torch.zeros(4)).cuda().to("cuda").moves)
net = Net().cuda()
print(net.fc.weight.is_cuda, net.anchors.is_cuda)
print(Boxes(torch.zeros(4)).cuda().box.is_cuda)
