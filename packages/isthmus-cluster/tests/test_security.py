"""``isthmus security``: permissions and their repair, umask, ports against the communication matrix."""

from __future__ import annotations

import json
import os
import socket
import stat
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from isthmus_cluster import ports
from isthmus_cluster.security import app

CLUSTER = (
    "hosts: [{name: a, address: 10.0.0.1, cards: 8}, {name: b, address: 10.0.0.2, port: 2222, cards: 8}]"
)


def security(*arguments: object) -> tuple[int, str, str]:
    run = CliRunner().invoke(app, [str(each) for each in arguments])
    assert run.exception is None or isinstance(run.exception, SystemExit), run.exception
    return run.exit_code, run.stdout, run.stderr


def findings(*arguments: object) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(security("check", "--json", *arguments)[1])
    return found


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Make a folder with a file of each kind, above the table."""
    folder = tmp_path / "project"
    (folder / "out").mkdir(parents=True)
    modes = {
        "out/model.pt": 0o666,
        "out/.metadata": 0o644,
        "data.bin": 0o755,
        "train.py": 0o644,
        "run.sh": 0o777,
        "tool": 0o755,
        "log": 0o644,
    }
    for name, bits in modes.items():
        (folder / name).touch()
        (folder / name).chmod(bits)
    folder.chmod(0o2777)
    (folder / "out").chmod(0o755)
    (tmp_path / "outside").touch()
    (tmp_path / "outside").chmod(0o666)
    (folder / "link").symlink_to(tmp_path / "outside")
    return folder


def test_permissions_above_the_table(project: Path) -> None:
    code, output, _ = security("check", project)
    lines = [line for line in output.splitlines() if line.startswith("FAIL")]
    assert code == 1
    text = "\n".join(lines)
    for expected in (
        "folders above 0750: 2, 1 writable by all, such as",
        f"checkpoints above 0640: 2, 1 writable by all, such as {project}/out/.metadata (0644)",
        f"data files above 0640: 1, such as {project}/data.bin (0755)",
        f"program files above 0640: 1, such as {project}/train.py (0644)",
        f"scripts above 0750: 2, 1 writable by all, such as {project}/run.sh (0777), {project}/tool (0755)",
        f"other files above 0640: 1, such as {project}/log (0644)",
    ):
        assert expected in text
    assert "outside" not in output and mode(project / "data.bin") == 0o755  # nothing is changed


def test_shared_and_deployed(project: Path) -> None:
    code, output, _ = security("check", project, "--shared")
    assert code == 1 and "train.py" not in output and "log (" not in output
    assert "checkpoints above 0640: 2" in output and "folders above 0755: 1" in output
    (project / "train.py").chmod(0o640)
    assert (
        f"program files above 0440: 1, such as {project}/train.py"
        in security("check", project, "--deployed")[1]
    )


def test_fix_only_removes_permissions(project: Path) -> None:
    (project / "private").touch()
    (project / "private").chmod(0o600)
    code, output, changes = security("check", project, "--fix")
    assert code == 0 and f"{project}: no permissions above the table" in output
    assert f"changed: {project}/out/model.pt: 0666 to 0640\n" in changes
    assert f"{project}: 9 permissions changed, 0 not\n" in changes
    assert mode(project) == 0o2750 and mode(project / "out") == 0o750 and mode(project / "tool") == 0o750
    assert mode(project / "data.bin") == 0o640 and mode(project / "private") == 0o600
    assert mode(project.parent / "outside") == 0o666  # links are not followed
    assert "0 permissions changed, 0 not" in security("check", project, "--fix")[2]


def test_a_missing_path_is_one_line(tmp_path: Path) -> None:
    code, _, errors = security("check", tmp_path / "no")
    assert code == 1 and errors == f"isthmus: {tmp_path}/no: No such file or directory\n"
    code, _, errors = security("check", "--inventory", tmp_path / "no")
    assert code == 1 and errors.startswith(f"isthmus: {tmp_path}/no: No such file or directory; ")


def test_umask_and_address_randomisation() -> None:
    before = os.umask(0o022)
    try:
        (found,) = [each for each in findings() if each["text"].startswith("umask")]
        assert found["state"] == "warning" and "others can read" in found["text"]
        os.umask(0o027)
        (found,) = [each for each in findings() if each["text"].startswith("umask")]
        assert found["state"] == "ok"
    finally:
        os.umask(before)
    assert {"aslr", "permissions", "ports"} <= {each["subject"] for each in findings()}


def test_open_ports_and_the_communication_matrix(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(CLUSTER)
    with socket.socket() as local, socket.socket() as everywhere:
        local.bind(("127.0.0.1", 0))
        everywhere.bind(("", 0))
        local.listen()
        everywhere.listen()
        number = everywhere.getsockname()[1]
        texts = [each["text"] for each in findings() if each["subject"] == "ports"]
        assert any(text.startswith(f"port {number} is open on 0.0.0.0") for text in texts)
        assert not any(f"port {local.getsockname()[1]} " in text for text in texts)
        for options in (["--allow", number], ["-i", tmp_path / "c.yaml", "--port", number]):
            texts = [each["text"] for each in findings(*options) if each["subject"] == "ports"]
            assert not any(f"port {number} " in text for text in texts)


def test_matrix(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(CLUSTER)
    first, last = ports.ephemeral_ports()
    assert security("matrix", "-i", tmp_path / "c.yaml", "--port", 6000)[1].splitlines() == [
        "source\tdestination\tports\tprotocol\tpurpose",
        "administrator\ta\t22\tTCP\tssh",
        "administrator\tb\t2222\tTCP\tssh",
        "b\ta\t6000\tTCP\trendezvous",
        f"all hosts\ta\t{first}-{last}\tTCP\tNCCL and Gloo",
        f"all hosts\tb\t{first}-{last}\tTCP\tNCCL and Gloo",
    ]
    (tmp_path / "c.yaml").write_text(
        CLUSTER.replace("cards: 8}]", "cards: [{index: 0, address: 10.1.0.1}]}]")
    )
    output = security("matrix", "-i", tmp_path / "c.yaml")[1]
    assert "all hosts\tb\t60000-60031\tTCP\tHCCL" in output and "b\ta\t8118\tTCP\tmsrun" in output


def test_listeners_of_a_process_table(tmp_path: Path) -> None:
    (tmp_path / "proc/net").mkdir(parents=True)
    head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n"
    row = "   0: {} 00000000:0000 {} 00000000:00000000 00:00000000 00000000  1000 0 1\n"
    rows = [("0100007F:0016", "0A"), ("0100000A:1F90", "0A"), ("00000000:0050", "01")]
    (tmp_path / "proc/net/tcp").write_text(head + "".join(row.format(*each) for each in rows))
    mapped = "0000000000000000FFFF00000100007F:0051"
    (tmp_path / "proc/net/tcp6").write_text(
        head + row.format(mapped, "0A") + row.format("0" * 32 + ":0052", "0A")
    )
    assert list(ports.listeners(tmp_path)) == [("10.0.0.1", 8080, 1000), ("::", 82, 1000)]
