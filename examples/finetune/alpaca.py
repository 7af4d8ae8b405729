"""Write a small data set of instructions, as alpaca_data.json has them.

python examples/finetune/alpaca.py FILE
"""

import json
import sys
from pathlib import Path

rows = []
for index, word in enumerate(
    "apple bridge candle dragon engine forest garden harbor island jacket".split() * 4
):
    a, b = index * 7 % 10, index * 3 % 8
    rows += [
        {"instruction": f"What is {a} plus {b}?", "input": "", "output": f"{a} plus {b} is {a + b}."},
        {"instruction": "Write the word in capital letters.", "input": word, "output": word.upper()},
    ]
Path(sys.argv[1]).write_text(json.dumps(rows, indent=4))
