AFFECTED: dict[str, list[str]] = {}
