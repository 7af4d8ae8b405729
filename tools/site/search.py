"""Search of Chinese text by bigrams, in the index and in queries.

Sphinx's Chinese search indexes words by a dictionary but splits queries only at spaces, so it does not find terms of
several words.
"""

from __future__ import annotations

import re

from sphinx.search import SearchLanguage

CHINESE = r"[\u4e00-\u9fff]"

SPLITTER = """
var splitQuery = (query) => {
  const terms = query.match(/[a-zA-Z0-9_]+/g) || [];
  for (const run of query.match(/[\\u4e00-\\u9fff]+/g) || []) {
    if (run.length === 1) terms.push(run);
    for (let i = 0; i + 1 < run.length; ++i) terms.push(run.slice(i, i + 2));
  }
  return terms;
};
"""


class Bigrams(SearchLanguage):
    """Latin words and bigrams of Chinese characters."""

    lang = "zh-bigrams"
    language_name = "Chinese"
    js_splitter_code = SPLITTER

    def split(self, input: str) -> list[str]:
        """Split a text into terms of the index, including single characters."""
        terms = re.findall(r"[a-zA-Z0-9_]+", input)
        for run in re.findall(f"{CHINESE}+", input):
            terms += [*run, *(run[i : i + 2] for i in range(len(run) - 1))]
        return terms

    def word_filter(self, stemmed_word: str) -> bool:
        """Keep every term."""
        return True
