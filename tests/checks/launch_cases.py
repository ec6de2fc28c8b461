"""All cases of the rules over launches."""

from checks.any_engine_cases import ANY_ENGINE
from checks.launch_case import Case
from checks.sglang_cases import SGLANG_CASES
from checks.vllm_cases import VLLM_CASES

CASES: tuple[Case, ...] = (*ANY_ENGINE, *VLLM_CASES, *SGLANG_CASES)
