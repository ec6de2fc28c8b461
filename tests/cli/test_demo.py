import json
from pathlib import Path

from inkling_cli.main import main
from inkling_runtime.adapter.adapter import read_adapter, require_understood
from inkling_runtime.adapter.coverage import compare
from inkling_runtime.adapter.model_spec import read_model_spec
from inkling_runtime.adapter.site_pairs import HEADERS_ONLY, gather_pairs


def names(folder: Path):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_the_demo_is_small_and_whole(tmp_path, capsys):
    assert main(["demo", str(tmp_path / "d")]) == 0
    assert names(tmp_path / "d") == [
        "adapters/by-twos/adapter_config.json",
        "adapters/by-twos/adapter_model.safetensors",
        "adapters/count-down/adapter_config.json",
        "adapters/count-down/adapter_model.safetensors",
        "model/config.json",
        "model/model.safetensors",
        "model/tokenizer.json",
        "prompts.jsonl",
        "serve.sh",
    ]
    assert sum(path.stat().st_size for path in (tmp_path / "d").rglob("*")) < 5_000_000
    assert "inkling check-config serve.sh" in capsys.readouterr().out


def test_its_adapters_are_released_ones_that_cover_the_model(tmp_path):
    assert main(["demo", str(tmp_path / "d")]) == 0
    spec = read_model_spec(tmp_path / "d" / "model")
    for name in ("count-down", "by-twos"):
        adapter = read_adapter(tmp_path / "d" / "adapters" / name)
        require_understood(adapter)
        coverage = compare(gather_pairs(adapter, spec, HEADERS_ONLY), spec)
        assert adapter.dialect.name == "tinker"
        assert (coverage.missing, coverage.surplus, coverage.misfits) == ((), (), ())


def test_an_existing_folder_is_kept(tmp_path, capsys):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "mine").write_text("x")
    assert main(["demo", str(tmp_path / "d")]) == 2
    assert names(tmp_path / "d") == ["mine"]
    assert "pass `--overwrite`" in capsys.readouterr().err
    assert main(["demo", str(tmp_path / "d"), "--overwrite"]) == 2
    assert "holds no `serve.sh`, so it is not replaced" in capsys.readouterr().err
    (tmp_path / "d" / "serve.sh").write_text("x")
    assert main(["demo", str(tmp_path / "d"), "--overwrite", "--output-format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["commands"][0].startswith("inkling inspect")
    assert "mine" not in names(tmp_path / "d")
    assert [path.name for path in tmp_path.iterdir()] == ["d"]
