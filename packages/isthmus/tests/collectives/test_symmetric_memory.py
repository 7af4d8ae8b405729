"""Code that chooses NCCL's symmetric memory runs; asking for such memory is refused by PyTorch."""

from tests.helpers.children import output


def test_the_choice_is_taken_and_undone():
    code = """
    import torch
    from isthmus import shim

    with shim.enter():
        import torch.distributed._symmetric_memory as symmetric
        symmetric.set_backend("NCCL")
        try:
            symmetric.set_backend("other")
        except RuntimeError:
            print("refused")
    has_nccl = torch.distributed.is_nccl_available()
    try:
        symmetric.set_backend("NCCL")
        print(has_nccl)
    except RuntimeError as error:
        print("NCCL" in str(error))
    """
    assert output(code, ISTHMUS_HOST_DEVICES="1").split() == ["refused", "True"]
