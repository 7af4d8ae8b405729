"""The documentation site: `python -m tools.site` builds it, `python -m tools.site.check` looks at it in a browser."""
