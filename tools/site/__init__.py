"""The documentation site: `python -m tools.site` builds it, `python -m tools.site.check` checks it in a browser."""
