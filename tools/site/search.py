"""Search of Chinese text: every two neighbouring characters are a term, in the index and in a query alike.

Sphinx's own Chinese search needs a dictionary to index by words, and then splits a query only at spaces, so that it
does not find a term of several words. Pairs need neither.
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
    """Latin words, and pairs of Chinese characters."""

    lang = "zh-bigrams"
    language_name = "Chinese"
    js_splitter_code = SPLITTER

    def split(self, input: str) -> list[str]:
        """Terms of a text for the index: single characters too, for a query of one."""
        terms = re.findall(r"[a-zA-Z0-9_]+", input)
        for run in re.findall(f"{CHINESE}+", input):
            terms += [*run, *(run[i : i + 2] for i in range(len(run) - 1))]
        return terms

    def word_filter(self, stemmed_word: str) -> bool:
        """Every term counts."""
        return True
