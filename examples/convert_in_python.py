"""Convert an adapter from Python: read, plan, look at the plan, write.

python examples/convert_in_python.py ADAPTER OUT [DIALECT]
"""

import sys
from pathlib import Path

from inkling_runtime.adapter.adapter import read_adapter
from inkling_runtime.adapter.arrays import CONTENTS
from inkling_runtime.adapter.convert.plan import plan_conversion
from inkling_runtime.adapter.convert.write import write_conversion
from inkling_runtime.adapter.dialects import require_dialect
from inkling_runtime.errors import InklingError


def main(source: Path, out: Path, dialect: str) -> None:
    """Convert `source` to a dialect and say what was done."""
    adapter = read_adapter(source)
    plan = plan_conversion(adapter, require_dialect(dialect), None, CONTENTS)
    print(f"{adapter.dialect.name} → {dialect}: {len(plan.outputs)} tensors, {plan.nbytes:,} bytes")
    for change in plan.changes:
        print(f"  {change}")
    write_conversion(plan, out)


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "vllm")
    except InklingError as error:
        sys.exit(f"error: {error}")
