"""The release of CANN that the reference runtime reports, and the files in which clients look for it."""

import re

DEFAULT = "8.2.RC1"
_RELEASE = re.compile(r"\d+\.\d+\.(\d+|RC\d+|T\d+)(\.[a-z]+\d+)?")
_MOST_CHARACTERS = 31  # as aclsysGetCANNVersion() allows
_PACKAGES = ("runtime", "compiler", "hccl", "opp", "toolkit")
_ARCHITECTURES = ("x86_64", "aarch64")


def check_version(version: str) -> None:
    """Raise ValueError for a text that is not a release of CANN."""
    if _RELEASE.fullmatch(version) is None or len(version) > _MOST_CHARACTERS:
        raise ValueError("not a release of CANN; expected a number such as 8.2.RC1, 8.5.0 or 8.5.0.alpha001")


def version_files(version: str) -> dict[str, str]:
    """Return the texts of an installation's files that name a release, by their paths in it.

    Sources: MindSpeed reads ``toolkit_installed_version`` of version.cfg, vLLM Ascend ``version`` of
    ascend_toolkit_install.info, as torch_npu's collect_env does; custom operators read ``Version`` of version.info.
    """
    lines = ["# version: 1.0"]
    for state in ("running", "upgrade", "installed"):
        lines += [f"{package}_{state}_version=[{version}:{version}]" for package in _PACKAGES]
    files = {"version.cfg": "\n".join([*lines, ""])}
    for package in ("runtime", "compiler", "opp"):
        files[f"{package}/version.info"] = f"Version={version}\nversion_dir={version}\n"
    for architecture in _ARCHITECTURES:
        files[f"{architecture}-linux/ascend_toolkit_install.info"] = (
            f"package_name=Ascend-cann-toolkit\nversion={version}\ninnerversion={version}\n"
            f"arch={architecture}\nos=linux\n"
        )
    return files
