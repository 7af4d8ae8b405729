"""``isthmus run``: CUDA scripts run unchanged, and everything about the process is plain Python's."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from isthmus import options
from isthmus.launch.cli import main, parse
from isthmus.launch.ranks import Ranks
from isthmus.launch.run import SITE, Job, JobError
from tests.helpers.command import run
from tests.helpers.outside_driver import build
from tools.repository import ROOT

SCRIPTS = Path(__file__).parents[1] / "scripts"
START = r"isthmus: cuda -> chip:0 \(driver host, 1 device, 1\.0 GiB\)\n"
END = (
    r"isthmus: \d+ operators?: \d+ delegate, \d+ kernel, \d+ decomposed, \d+ fallback"
    r" · peak \d+\.\d( MiB)? of 1\.0 GiB · set_device \d+\n"
)


def plain(*arguments):
    """Run plain Python with the same arguments; these scripts do not need a GPU."""
    return subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("page", ["docs/guides/run-a-cuda-script.md", "docs/zh/guides/run-a-cuda-script.md"])
def test_the_guide_explains_every_part_of_the_end_line(page):
    text = (ROOT / page).read_text().splitlines()
    (line,) = (each for each in text if re.fullmatch(END.replace(r"1\.0 GiB", r"8\.0 GiB"), f"{each}\n"))
    explained = [cells[1].strip(" `") for cells in (row.split("|") for row in text) if len(cells) == 4]
    first, _, rest = line.removeprefix("isthmus: ").partition(": ")
    routes, *others = rest.split(" · ")
    for part in (first, *(route.split()[1] for route in routes.split(", ")), *others):
        assert part in explained, part


# ---- programs ------------------------------------------------------------------------------------------------
def test_an_unmodified_training_script(tmp_path):
    done = run(SCRIPTS / "cuda_training.py", "--epochs", 2)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"trained from [\d.]+ to [\d.]+ on Isthmus host chip\n", done.stdout)
    assert re.match(START, done.stderr) and re.search(END + r"\Z", done.stderr)
    assert " 0 fallback" in done.stderr


@pytest.mark.parametrize("ways", ["some", pytest.param("all", marks=pytest.mark.full)])
def test_children_inherit_the_shim(ways):
    done = run(SCRIPTS / "children.py", ways)
    assert done.returncode == 0, done.stderr
    lines = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    commands = re.findall("^command (.*)", done.stdout, re.MULTILINE)
    assert lines["pool"] == "[(True, 3.0)]"
    if ways == "all":
        assert commands == ["True ['-c', '-c'] 0", "True ['-c'] 1", "True ['-', 'a'] 1", "True [''] 0"]
        assert lines["spawn"] == "{0: (True, 0.0)}"
    else:
        assert commands == ["True ['-c'] 1"]
    facts = json.loads(lines["script"])
    assert facts["cuda"] and facts["name"] == "__main__" and facts["argv"] == ["facts.py", "child"]
    assert facts["unbuffered"], "the option -u of the child was lost"
    assert done.stderr.count("isthmus: cuda ->") == 1, "only the job's own program prints the lines"


@pytest.mark.full
def test_the_end_line_counts_child_processes(tmp_path):
    done = run(SCRIPTS / "counted_children.py", TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("[[[0.76") and done.stdout.count("\n") == 1
    end = re.search(
        r"(\d+) operators: .* · peak (\d+)\.\d MiB of 1\.0 GiB · set_device (\d+)\n\Z", done.stderr
    )
    assert end and end[1] == "6", "fill_, sin, cos, exp, tanh and erf: " + done.stderr
    assert end[2] == "8" and int(end[3]) >= 4
    assert not list(tmp_path.glob("isthmus-counts-*"))


@pytest.mark.full
def test_nproc_runs_ranks_through_torchrun(tmp_path):
    done = run("--nproc", 2, SCRIPTS / "ddp_training.py", TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "isthmus: ranks 0 to 1 of 2\n" in done.stderr and not list(tmp_path.glob("isthmus-ddp*"))
    assert done.stdout == "agreed [{'rank': 0}, {'rank': 1}]\n"
    starts = re.findall(r"isthmus: cuda -> .*", done.stderr)
    assert starts == ["isthmus: cuda -> chip:0 (driver host, 2 devices, 1.0 GiB each, world size 2)"]


@pytest.mark.full
def test_torchrun_and_accelerate_as_commands():
    done = run(
        "torchrun",
        "--standalone",
        "--nproc-per-node=gpu",
        SCRIPTS / "ddp_training.py",
        ISTHMUS_HOST_DEVICES="2",
    )
    assert done.returncode == 0 and done.stdout == "agreed [{'rank': 0}, {'rank': 1}]\n", done.stderr
    done = run("accelerate", "launch", "--num_processes", 1, SCRIPTS / "facts.py", "--flag")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["cuda"] and facts["argv"] == ["facts.py", "--flag"]


# ---- as plain Python -----------------------------------------------------------------------------------------
@pytest.mark.full
def test_a_script_sees_the_environment_of_plain_python():
    done = run(SCRIPTS / "facts.py", "--device", "x", "-m", "y")
    facts = json.loads(done.stdout)
    assert facts.pop("cuda") and not facts.pop("unbuffered")
    assert facts == {
        "name": "__main__",
        "file": "facts.py",
        "argv": ["facts.py", "--device", "x", "-m", "y"],
        "path": str(SCRIPTS),
        "spec": False,
        "package": None,
        "main": True,
        "modules": [],
    }


def test_a_module(monkeypatch):
    monkeypatch.chdir(SCRIPTS.parent)
    facts = json.loads(run("-m", "scripts.facts", "--nproc", "3").stdout)
    assert facts["argv"] == ["facts.py", "--nproc", "3"] and facts["package"] == "scripts" and facts["spec"]
    assert facts["path"] == str(SCRIPTS.parent) and facts["cuda"] and facts["main"]


@pytest.mark.full
def test_a_command():
    done = run("-c", "import sys, torch; print(sys.argv, __name__, torch.ones(1).cuda().is_cuda)", "-x", "y")
    assert done.stdout == "['-c', '-x', 'y'] __main__ True\n"


def test_a_folder_with_main(tmp_path):
    (tmp_path / "__main__.py").write_text("import sys, helper\nprint(helper.name, __name__, len(sys.argv))\n")
    (tmp_path / "helper.py").write_text("name = 'helper'\n")
    assert run(tmp_path, "a").stdout == "helper __main__ 2\n"


def test_a_program_without_torch_prints_nothing_of_ours(tmp_path):
    script = tmp_path / "s.py"
    script.write_text("import sys\nprint('torch' in sys.modules)\n")
    done = run(script)
    assert (done.stdout, done.stderr, done.returncode) == ("False\n", "", 0)


# ---- exits ---------------------------------------------------------------------------------------------------
@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("how", "code"), [("exit", 7), ("error", 1), ("signal", -signal.SIGTERM), ("end", 0)]
)
def test_exit_codes(how, code):
    done = run(SCRIPTS / "ends.py", how)
    assert done.returncode == code
    assert (re.search(END + r"\Z", done.stderr) is None) == (how == "signal")
    if how == "error":
        frames = re.findall(r'  File "(.+)", line (\d+), in (.+)', done.stderr)
        script = str(SCRIPTS / "ends.py")
        assert [frame[0] for frame in frames] == [script] * 3 and frames[0][2] == "<module>", done.stderr
        assert "ValueError: the user's own mistake" in done.stderr


def test_interrupts_and_hooks():
    done = run(SCRIPTS / "ends.py", "interrupt")
    assert done.returncode == -signal.SIGINT and done.stderr.count("KeyboardInterrupt") == 1
    assert str(Path("isthmus") / "launch") not in done.stderr
    done = run(SCRIPTS / "ends.py", "hook")
    assert (
        done.stdout == "my hook ValueError <module>\n"
        and done.returncode == 1
        and "Traceback" not in done.stderr
    )


@pytest.mark.full
def test_a_message_as_exit_status():
    done = run(SCRIPTS / "ends.py", "message")
    assert done.returncode == 1 and "a message\n" in done.stderr and "Traceback" not in done.stderr


def test_a_syntax_error_is_pythons(tmp_path):
    script = tmp_path / "s.py"
    script.write_text("x = torch.ones(1).type ==\n")
    ours, theirs = run(script), plain(script)
    assert (ours.stderr, ours.returncode) == (theirs.stderr, theirs.returncode)


# ---- options -------------------------------------------------------------------------------------------------
@pytest.mark.full
@pytest.mark.sampled(1)
@pytest.mark.parametrize("libraries", ["transformers", "transformers,torch"])
def test_operators_under_a_library_that_is_imported_before_torch(libraries, tmp_path):
    pytest.importorskip("transformers")
    script = tmp_path / "script.py"
    script.write_text(
        "from transformers import LlamaForCausalLM\n"
        "import isthmus_common.patches, torch\n"
        "print(len(isthmus_common.patches.active('ops')) > 10, torch.zeros(1).cuda().device)\n"
        "print(LlamaForCausalLM.__module__)\n"
    )
    done = run("--patch", libraries, script)
    assert done.returncode == 0, done.stderr
    for library in libraries.split(","):
        assert re.search(
            rf"^isthmus: {library}: [1-9]\d* of its functions by isthmus.ops$", done.stderr, re.M
        )
    assert done.stdout == "True cuda:0\ntransformers.models.llama.modeling_llama\n"
    assert "not patched" not in done.stderr


def test_the_libraries_that_can_be_patched():
    from isthmus.ops.patching import LIBRARIES

    assert options.PATCHABLE == LIBRARIES


def test_device_and_quiet_where_nothing_has_run_before(tmp_path):
    code = "import torch; print(torch.ones(1, device='cuda').device, torch.cuda.current_device())"
    places = {"TMPDIR": str(tmp_path), "XDG_RUNTIME_DIR": ""}
    done = run("--device", "chip:1", "--quiet", "-c", code, ISTHMUS_HOST_DEVICES="2", **places)
    assert (done.stdout, done.stderr) == ("cuda:1 1\n", "")
    done = run("--device", "1", "-c", code, ISTHMUS_HOST_DEVICES="2", **places)
    first, last = done.stderr.splitlines()
    assert first.startswith("isthmus: cuda -> chip:1 (") and " operator" in last


def test_a_driver_that_counts_its_devices_after_initialize(tmp_path):
    edit = "table.initialize = note_initialize; table.device_count = count_when_initialized;"
    code = "import torch; print(torch.ones(2, device='cuda').sum().item())"
    done = run("-c", code, ISTHMUS_DRIVER=build(tmp_path, edit))
    assert (done.returncode, done.stdout) == (0, "2.0\n"), done.stderr
    first, *_, last = done.stderr.splitlines()
    assert first == "isthmus: cuda -> chip:0 (driver liboutside, 1 device, 1.0 GiB)" and " operator" in last


@pytest.mark.full
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("5", "1 device available, numbered from 0"),
        ("-1", "not a device; give its number or, for example, chip:0"),
        ("chip:", "not a device; give its number or, for example, chip:0"),
        ("xpu", "the accelerator of this machine is chip"),
    ],
)
def test_an_unavailable_device(device, message):
    done = run("--device", device, "-c", "import torch")
    assert done.returncode == 2
    assert done.stderr == f"isthmus: --device {device} (or ISTHMUS_DEVICE): {message}\n"


@pytest.mark.full
def test_a_small_device():
    done = run("-c", "import torch; torch.ones(1).cuda()", ISTHMUS_HOST_MEMORY="64MiB")
    assert "1 device, 64.0 MiB)" in done.stderr and re.search(r"peak \d+\.\d of 64\.0 MiB ", done.stderr)


@pytest.mark.full
def test_hidden_devices():
    done = run("-c", "import torch; print(torch.cuda.is_available())", CUDA_VISIBLE_DEVICES="-1")
    assert (done.stdout, done.returncode) == ("False\n", 0)
    assert done.stderr == "isthmus: CUDA_VISIBLE_DEVICES=-1 hides every device; unset it to use one\n"


def test_devices_that_the_program_hides():
    code = "import os, torch; os.environ['CUDA_VISIBLE_DEVICES'] = '1'; print(torch.cuda.device_count())"
    done = run("-c", code)
    assert (done.stdout, done.returncode) == ("0\n", 0)
    assert done.stderr.splitlines()[1:] == [
        "isthmus: CUDA_VISIBLE_DEVICES=1 hides every device; unset it to use one"
    ]


@pytest.mark.parametrize("variables", [{}, {"CUDA_VISIBLE_DEVICES": "0"}], ids=["all", "chosen"])
def test_no_accelerator_is_one_line(variables):
    done = run("--driver", "none", "-c", "import torch; print('not reached')", **variables)
    assert done.returncode == 1 and done.stdout == ""
    assert re.fullmatch(r"isthmus: no accelerator: [^\n]*`isthmus doctor` says why\n", done.stderr)


def test_a_wrong_option_is_one_line():
    done = run("-c", "print('not reached')", ISTHMUS_HOST_MEMORY="64Mb")
    assert (done.returncode, done.stdout) == (2, "") and done.stderr.count("\n") == 1
    assert done.stderr.startswith("isthmus: ISTHMUS_HOST_MEMORY=64Mb: not a size; set it to")


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no_such.py"], "cannot run no_such.py: no such file, and no such command on PATH"),
        ([], "nothing to run; give a script"),
        (["-m"], "-m needs a value"),
        (["--nproc", 2, "-c", "pass"], "--nproc runs a script or a module"),
        (["--nproc", 2, "no_such.py"], "no_such.py: no such script"),
        (["--nproc", -1, __file__], "--nproc -1: give 1 or more, or auto"),
        (
            ["--patch", "flax", __file__],
            "--patch flax: not supported by isthmus.ops; expected transformers, torch",
        ),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(arguments, message):
    done = run(*arguments)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith(f"isthmus: {message}") and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("given", "program", "flags"),
    [
        ("a.py --nproc 3", "a.py --nproc 3", {}),
        ("--nproc 3 a.py -m b --dev 1", "a.py -m b --dev 1", {"nproc": "3"}),
        ("--nproc=3 --quiet -m b --help", "-m b --help", {"nproc": "3", "quiet": "1"}),
        ("-c x --device 1 -m y -- -c z", "-c x --device 1 -m y -- -c z", {}),
        ("a.py -- --device 1", "a.py -- --device 1", {}),
        ("--device -1 a.py -1 -", "a.py -1 -", {"device": "-1"}),
        ("--explain", "", {"explain": True}),
        ("--quiet -- --odd.py -- x", "--odd.py -- x", {"quiet": "1"}),
        ("-m", "-m", {}),
    ],
)
def test_options_of_the_program_are_the_programs(given, program, flags):
    expected = {**vars(parse([])), "program": program.split(), **flags}
    assert vars(parse(given.split())) == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("--dumb statistics a.py", "--dumb: no such option, did you mean --dump?"),
        ("--nproc", "--nproc/--nproc-per-node: expected one argument"),
        ("--node-rank x a.py", "--node-rank: invalid int value: 'x'"),
        ("--dump all a.py", "--dump all: unknown value; expected statistics, hashes or tensors"),
        ("--dump-level all a.py", "--dump-level needs --dump"),
        ("--health-dir x a.py", "--health-dir needs --health"),
        ("--plan x --swap a.py", "--plan x: give --plan or --swap"),
        ("--max-restarts 1 a.py", "the options of ranks need --nproc N"),
    ],
)
def test_wrong_flags_are_one_line(given, message, capsys):
    with pytest.raises(SystemExit) as ended:
        sys.exit(main(given.split()))
    error = capsys.readouterr().err
    assert (ended.value.code, error.count("\n")) == (2, 1) and error.startswith(f"isthmus: {message}"), error


def test_a_flag_of_a_package_that_is_absent(monkeypatch, capsys):
    monkeypatch.setattr("isthmus.launch.cli.tables", lambda: [options.TABLE])
    monkeypatch.setattr("isthmus.launch.cli.PACKAGES", ("isthmus", "isthmus_nowhere"))
    with pytest.raises(SystemExit):
        parse(["--dump", "hashes", "a.py"])
    assert "(not installed: isthmus-nowhere)" in capsys.readouterr().err


def test_the_variables_of_flags_of_other_packages(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = {
        "dump": "hashes",
        "monitor": "there",
        "health": "1",
        "health_dir": "",
        "patch": "torch, transformers",
    }
    environment = Job(
        ["x.py"], given, environ={"ISTHMUS_HEALTH_DIR": "mine", "ISTHMUS_HEALTH_CLAIM": "1"}
    ).environment()
    found = {name.removeprefix("ISTHMUS_"): environment[name] for name in environment}
    folders = {
        name: str(Path(found[name]).relative_to(tmp_path)) for name in ("DUMP_DIR", "MONITOR", "HEALTH_DIR")
    }
    assert folders == {"DUMP_DIR": "isthmus-dump", "MONITOR": "there", "HEALTH_DIR": "mine"}
    assert (found["DUMP"], found["HEALTH"], found["HEALTH_CLAIM"], found["DEBUG_LISTEN"]) == (
        "hashes",
        "1",
        "",
        "1",
    )
    assert Job(["x.py"], {"device": "cpu"}, environ={}).environment()["ISTHMUS_DRIVER"] == "none"
    assert (
        Job(["x.py"], {"device": "cpu", "driver": "host"}, environ={}).environment()["ISTHMUS_DRIVER"]
        == "host"
    )
    with pytest.raises(JobError, match="--nothing: no such option"):
        Job(["x.py"], {"nothing": "1"}).environment()


def test_a_job_starts_without_the_packages_of_other_commands(tmp_path):
    for name in ("pydantic", "jinja2", "rich", "typer"):
        (tmp_path / f"{name}.py").write_text(
            f"raise ModuleNotFoundError('{name} is refused', name='{name}')\n"
        )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "ISTHMUS_HOST_MEMORY": "1GiB"}
    command = [sys.executable, "-m", "isthmus", "run", "--nproc", "2", str(SCRIPTS / "ddp_training.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "agreed [{'rank': 0}, {'rank': 1}]\n"), done.stderr


def test_the_environment_of_a_job():
    given = {"device": "1", "driver": "host"}
    job = Job(["x.py"], given, Ranks("2"), environ={"PYTHONPATH": f"{SITE}{os.pathsep}/a"})
    environment = job.environment()
    assert environment["PYTHONPATH"] == f"{SITE}{os.pathsep}/a"
    assert (environment["ISTHMUS_DEVICE"], environment["ISTHMUS_DRIVER"]) == ("1", "host")
    assert int(environment["OMP_NUM_THREADS"]) >= 1 and environment["ISTHMUS_SHIM"] == "1"
    job = Job(["x.py"], ranks=Ranks("2"), environ={"OMP_NUM_THREADS": "5"})
    assert job.environment()["OMP_NUM_THREADS"] == "5"
    with pytest.raises(JobError):
        Job([]).command()


def test_another_sitecustomize_still_runs(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import builtins\nbuiltins.theirs = 'here'\n")
    done = run(
        "-c",
        "import sys; print(theirs, [p for p in sys.path if p.endswith('launch/site')])",
        PYTHONPATH=tmp_path,
    )
    assert done.stdout == "here []\n", done.stderr


def test_a_syntax_error_in_an_imported_module_ends_at_the_import(tmp_path):
    (tmp_path / "bad.py").write_text("x.type ==\n")
    script = tmp_path / "s.py"
    script.write_text("import bad\n")
    ours, theirs = run(script), plain(script)
    assert (ours.stderr, ours.returncode) == (theirs.stderr, theirs.returncode)


@pytest.mark.full
@pytest.mark.sampled(1)
def test_pytest_shows_the_values_of_assertions(tmp_path):
    text = "import torch\ndef test_device():\n    assert torch.ones(1).cuda().device.type == {!r}\n"
    (tmp_path / "test_same.py").write_text(text.format("cuda"))
    (tmp_path / "test_other.py").write_text(text.format("cpu"))
    done = run("--quiet", "-m", "pytest", "-q", tmp_path)
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "AssertionError: assert 'cuda' == 'cpu'" in done.stdout
