"""driver.toml: what a driver is, beside its library."""

from pathlib import Path

import pytest

from isthmus import drivers
from tests.helpers.children import run

HOST = Path(drivers.__file__).parent / "host" / "libisthmus_host.so"


def describe(folder: Path, text: str) -> Path:
    file = folder / "driver.toml"
    file.write_text(text)
    return file


def test_paths_are_relative_to_the_file_and_the_rest_has_defaults(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "mine.so").touch()
    file = describe(tmp_path, 'name = "mine"\nlibrary = "lib/mine.so"\noperators = ["a.py", "lib/b.so"]\n')
    (candidate,) = drivers.find(str(file)).candidates
    assert candidate == drivers.Candidate(
        name="mine",
        path=str(tmp_path / "lib" / "mine.so"),
        origin="path",
        operators=(str(tmp_path / "a.py"), str(tmp_path / "lib" / "b.so")),
    )
    assert (candidate.prefer, candidate.delegate, candidate.fallback) == ("kernel", "", True)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('library = "a.so"', "the key 'name' is missing"),
        ('name = "mine"', "the key 'library' is missing"),
        (
            'name = "mine"\nlibrary = "a.so"\nprefer = "speed"',
            "prefer = 'speed'; expected one of kernel, delegate",
        ),
        ('name = "mine"\nlibrary = "a.so"\nfallback = "no"', "fallback = 'no' is not a bool"),
        ('name = "mine"\nlibrary = "a.so"\noperators = [1]', "operators = [1] is not a list of paths"),
        (
            'name = "mine"\nlibrary = "a.so"\noperator = "a.py"',
            "unknown key: operator; expected one of batch_invariant, code_generator, delegate,",
        ),
        ("name = mine", "Invalid value"),
    ],
)
def test_a_wrong_description_is_one_line_that_names_file_and_key(
    tmp_path: Path, text: str, problem: str
) -> None:
    file = describe(tmp_path, text)
    search = drivers.find(str(file))
    assert not search.candidates
    assert search.problem.startswith(str(file)) and problem in search.problem
    assert "\n" not in search.problem


def test_a_description_narrows_the_library_and_names_the_driver(tmp_path: Path) -> None:
    file = describe(tmp_path, f'name = "mine"\nlibrary = "{HOST}"\ndelegate = "none"\nfallback = false\n')
    done = run(
        """
        import torch
        from isthmus import _C
        print(_C.driver()["name"], repr(_C.driver()["delegate"]))
        x = torch.tensor([1.0, 2.0]).to("chip")
        print(x.view(1, 2).cpu().tolist(), x[1].item())
        try:
            x + x
        except NotImplementedError as error:
            print(error)
        """,
        ISTHMUS_DRIVER=str(file),
    )
    lines = done.stdout.splitlines()
    assert lines[:2] == ["mine ''", "[[1.0, 2.0]] 2.0"], done.stderr
    assert lines[2].startswith(
        "aten::add.Tensor has no route on driver mine for float32: no library has a kernel"
    )
    assert "allows no fallback to CPU" in lines[2]


def test_a_delegate_that_the_library_does_not_declare_is_refused(tmp_path: Path) -> None:
    file = describe(tmp_path, f'name = "mine"\nlibrary = "{HOST}"\ndelegate = "cpu"\n')
    done = run(
        "import torch; print(torch.chip.device_count())", ISTHMUS_DRIVER=str(file), ISTHMUS_HOST_DELEGATE="0"
    )
    assert done.stdout.split() == ["0"]
    assert "delegate" in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr


def test_an_operator_library_that_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    file = describe(tmp_path, f'name = "mine"\nlibrary = "{HOST}"\noperators = ["absent.py"]\n')
    done = run("import torch; print(torch.chip.device_count())", ISTHMUS_DRIVER=str(file))
    assert done.stdout.split() == ["0"]
    assert "absent.py" in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr


NPU = 'name = "npu"\nlibrary = "driver.so"\nrequires = "libnpu.so"\nsetup = "source set_env.sh"\n'


@pytest.fixture
def npu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of the device files, of the vendor's library, and of a driver that looks for both."""
    (tmp_path / "npu").mkdir()
    (tmp_path / "npu" / "driver.so").touch()
    describe(tmp_path / "npu", f'{NPU}devices = "{tmp_path}/davinci[0-9]*"')
    monkeypatch.setattr(drivers, "FOLDER", tmp_path)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    return tmp_path


def test_a_driver_of_devices_is_found_where_a_device_and_the_library_are(npu: Path) -> None:
    (npu / "davinci0").touch()
    (npu / "libnpu.so").touch()
    assert [candidate.name for candidate in drivers.find().candidates] == ["npu"]
    assert drivers.unready_drivers() == []


def test_without_a_device_it_is_not_tried_unless_it_is_named(npu: Path) -> None:
    (npu / "davinci_manager").touch()
    search = drivers.find()
    assert not search.candidates
    assert f"driver npu: no device {npu}/davinci[0-9]*" in search.searched
    assert [candidate.name for candidate in drivers.find("npu").candidates] == ["npu"]


def test_without_the_library_a_line_names_the_remedy(npu: Path) -> None:
    (npu / "davinci0").touch()
    (line,) = drivers.unready_drivers()
    assert line.endswith("exists, but libnpu.so is in no folder of LD_LIBRARY_PATH; run `source set_env.sh`")
    search = drivers.find()
    assert not search.candidates
    assert line in search.searched


def test_a_present_device_precedes_the_host_chip(npu: Path) -> None:
    (npu / "davinci0").touch()
    (npu / "libnpu.so").touch()
    (npu / "host").mkdir()
    (npu / "host" / "driver.so").touch()
    describe(npu / "host", 'name = "host"\nlibrary = "driver.so"')
    assert [candidate.name for candidate in drivers.find().candidates] == ["npu", "host"]
