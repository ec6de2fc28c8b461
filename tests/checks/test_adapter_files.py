"""What lies in an adapter's folder: each way in which it is unreadable is named for itself."""

import os
import shlex

import pytest

from checks.adapter_cases import convert, find, write_case
from checks.broken_folders import (
    CONFIG,
    WEIGHTS,
    call,
    change_config,
    list_in,
    put_into_base_model,
    write_config,
)
from factories import safetensors_bytes, write_json, write_model, write_released_adapter
from inkling_cli.checks.adapter import Consumer
from inkling_cli.checks.adapter.folder import read_folder
from inkling_runtime.errors import InklingError
from shards import INDEX, shard, split_weights


@pytest.fixture
def adapter(tmp_path):
    return write_released_adapter(tmp_path / "adapter", groups=["attention"])


def only(folder):
    (finding,) = find(folder, Consumer.NATIVE)
    return finding


@pytest.mark.parametrize("name", ["adapter_model.bin", "adapter_model.pt", "adapter_model.pth"])
def test_pickled_weights_are_named_and_never_opened(adapter, name):
    call(name)(adapter)
    (adapter / name).chmod(0)
    finding = only(adapter)
    assert (finding.code, f"`{name}`" in finding.message) == ("ADP102", True)
    assert finding.location.file == str(adapter / name)


def test_a_pickled_file_beside_sound_weights_is_nobodys_concern(adapter):
    (adapter / "adapter_model.bin").write_bytes(b"pickle")
    assert find(adapter, Consumer.NATIVE) == ()


def test_files_of_another_index_are_named_with_it(adapter):
    list_in("model.safetensors.index.json")(adapter)
    finding = only(adapter)
    assert finding.code == "ADP103"
    assert "`model.safetensors.index.json`" in finding.message
    assert "`model-00001-of-00002.safetensors`" in finding.message


def remedied(folder):
    """Do what the remedy of shards of another name asks for, and return the joined adapter."""
    remedy = only(folder).help
    out = folder.parent / "OUT"
    words = shlex.split(remedy.split("`")[-2])
    assert words[:3] == ["inkling", "convert-adapter", str(folder)]
    assert words[3:] == ["--to", "vllm", "-o", "OUT"]
    return remedy, lambda: convert(folder, "vllm", out)


def test_the_remedy_of_another_index_joins_its_files(adapter):
    split_weights(adapter, 2)
    (adapter / INDEX).rename(adapter / "model.safetensors.index.json")
    for number in (1, 2):
        (adapter / shard(number, 2)).rename(adapter / f"part-{number}.safetensors")
    index = (adapter / "model.safetensors.index.json").read_text()
    index = index.replace(shard(1, 2), "part-1.safetensors")
    index = index.replace(shard(2, 2), "part-2.safetensors")
    (adapter / "model.safetensors.index.json").write_text(index)
    remedy, join = remedied(adapter)
    assert f"rename the index `{INDEX}`" in remedy
    (adapter / "model.safetensors.index.json").rename(adapter / INDEX)
    assert find(join(), Consumer.NATIVE) == ()


def test_the_remedy_of_files_without_an_index_joins_them(adapter):
    split_weights(adapter, 2, with_index=False)
    for number in (1, 2):
        (adapter / shard(number, 2)).rename(adapter / f"part-{number}.safetensors")
    remedy, join = remedied(adapter)
    assert f"rename them `{shard(1, 2)}` and so on" in remedy
    for number in (1, 2):
        (adapter / f"part-{number}.safetensors").rename(adapter / shard(number, 2))
    assert find(join(), Consumer.NATIVE) == ()


def test_whole_shards_are_no_finding_of_the_folder(adapter):
    assert find(split_weights(adapter, 3), Consumer.NATIVE, Consumer.SGLANG) == ()


@pytest.mark.parametrize("with_index", [True, False])
def test_shards_that_are_not_whole_are_unreadable(adapter, with_index):
    split_weights(adapter, 3, with_index=with_index)
    (adapter / shard(2, 3)).unlink()
    finding = only(adapter)
    assert (finding.code, f"`{shard(2, 3)}`" in finding.message) == ("ADP104", True)
    named = INDEX if with_index else shard(1, 3)
    assert finding.location.file == str(adapter / named)


def test_shards_beside_the_one_file_are_said_to_be_passed_over(adapter):
    split_weights(adapter, 2, keeps_single=True)
    finding = only(adapter)
    assert (finding.code, f"`{shard(1, 2)}`" in finding.message) == ("ADP108", True)
    assert "others read the one alone" in finding.message


def test_a_file_beside_shards_is_said_to_be_passed_over(adapter):
    split_weights(adapter, 2)
    (adapter / "more.safetensors").write_bytes(safetensors_bytes({}))
    finding = only(adapter)
    assert (finding.code, "`more.safetensors`" in finding.message) == ("ADP108", True)
    assert "this tool reads the shards alone" in finding.message


def test_several_files_without_an_index_are_counted(adapter):
    call("part-1.safetensors")(adapter)
    (adapter / "part-2.safetensors").write_bytes((adapter / "part-1.safetensors").read_bytes())
    finding = only(adapter)
    assert finding.code == "ADP103"
    assert "`part-1.safetensors`, one of 2 safetensors files" in finding.message


def test_factors_in_a_base_model_are_found_by_its_index(adapter):
    put_into_base_model(adapter)
    (adapter / "model.safetensors").unlink()
    names = {"model.llm.layers.0.attn.wq_du.lora_A.default.weight": "model-1.safetensors"}
    write_json(adapter / "model.safetensors.index.json", {"weight_map": names})
    finding = only(adapter)
    assert (finding.code, "`model.safetensors.index.json`" in finding.message) == ("ADP107", True)


def test_a_base_model_without_factors_is_no_adapter(tmp_path):
    folder = write_model(tmp_path / "model", {})
    weight = {"model.llm.embed.weight": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}}
    (folder / "model.safetensors").write_bytes(safetensors_bytes(weight))
    with pytest.raises(InklingError, match=r"holds no `adapter_model\.safetensors`") as error:
        read_folder(folder)
    assert error.value.hint == "it looks like a base model, which is given with `--model`"


@pytest.mark.parametrize("files", [[], ["README.md"], ["tokenizer.json"]])
def test_a_folder_without_anything_of_an_adapter_is_an_error(tmp_path, files):
    for name in files:
        (tmp_path / name).touch()
    with pytest.raises(InklingError, match=r"holds no `adapter_model\.safetensors`"):
        read_folder(tmp_path)


def test_a_path_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(InklingError, match="does not exist"):
        read_folder(tmp_path / "nowhere")


def test_an_unknown_dialect_is_an_error_of_the_question(adapter):
    with pytest.raises(InklingError, match="`latin` is not a dialect"):
        read_folder(adapter, "latin")


def test_both_files_are_judged_where_both_are_broken(adapter):
    (adapter / WEIGHTS).write_bytes(b"")
    write_config("{")(adapter)
    assert [finding.code for finding in find(adapter, Consumer.NATIVE)] == ["ADP104", "ADP106"]


def test_a_link_that_leads_nowhere_is_unreadable_not_missing(adapter):
    (adapter / WEIGHTS).unlink()
    (adapter / WEIGHTS).symlink_to("gone")
    assert (only(adapter).code, "cannot be read" in only(adapter).message) == ("ADP104", True)


def test_a_folder_in_place_of_the_weights_is_unreadable(adapter):
    (adapter / WEIGHTS).unlink()
    (adapter / WEIGHTS).mkdir()
    assert only(adapter).code == "ADP104"


def test_a_pipe_in_place_of_the_weights_is_not_waited_for(adapter):
    (adapter / WEIGHTS).unlink()
    os.mkfifo(adapter / WEIGHTS)
    assert only(adapter).code == "ADP104"


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}', "valid JSON"),
        (b"\xff{}", "brace"),
        (b'{"a":{"dtype":"F9","shape":[],"data_offsets":[0,0]}}', "unknown dtype `F9`"),
        (b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,9]}}', "spans 9 bytes"),
        (b'{"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"a":1}', "stands twice"),
    ],
)
def test_the_reason_is_that_of_the_header(adapter, header, reason):
    (adapter / WEIGHTS).write_bytes(safetensors_bytes(header))
    assert (only(adapter).code, reason in only(adapter).message) == ("ADP104", True)


@pytest.mark.parametrize(
    ("edit", "key"),
    [
        (change_config(r=...), "r"),
        (change_config(r=0), "r"),
        (change_config(r=-2), "r"),
        (change_config(r="2"), "r"),
        (change_config(r=2.0), "r"),
        (change_config(r=True), "r"),
        (change_config(lora_alpha=...), "lora_alpha"),
        (change_config(lora_alpha="8"), "lora_alpha"),
        (change_config(use_rslora="yes"), "use_rslora"),
        (change_config(rank_pattern=[2]), "rank_pattern"),
        (change_config(alpha_pattern={"wq_du": None}), "alpha_pattern"),
        (change_config(target_modules=7), "target_modules"),
        (change_config(target_parameters="experts"), "target_parameters"),
    ],
)
def test_a_value_that_cannot_be_used_is_named_by_its_key(adapter, edit, key):
    edit(adapter)
    finding = only(adapter)
    assert (finding.code, finding.location.key) == ("ADP106", key)
    assert key in finding.message


@pytest.mark.parametrize("text", ["", "[]", "null", "{", '{"r": 2', '{"r": NaN}', '{"r":1,"r":2}'])
def test_a_config_that_is_no_object_is_unusable(adapter, text):
    write_config(text)(adapter)
    assert only(adapter).code == "ADP106"


@pytest.mark.parametrize("text", ["{}", "[]", "no JSON"])
def test_a_file_of_added_tokens_without_tokens_adds_none(adapter, text):
    (adapter / "added_tokens.json").write_text(text)
    assert find(adapter, Consumer.NATIVE) == ()


def test_files_that_trainers_leave_are_no_findings(adapter):
    for name in ("README.md", "tokenizer.json", "optimizer.pt", "training_args.bin", "config.json"):
        (adapter / name).write_text("{}")
    assert find(adapter, Consumer.NATIVE) == ()


@pytest.mark.parametrize("name", [WEIGHTS, CONFIG])
def test_a_file_of_the_adapter_stands_for_its_folder(adapter, name):
    assert read_folder(adapter / name).adapter is not None


@pytest.mark.parametrize("name", [INDEX, shard(2, 3)])
def test_a_shard_or_the_index_stands_for_its_folder(adapter, name):
    assert read_folder(split_weights(adapter, 3) / name).adapter is not None


@pytest.mark.parametrize("dialect", ["vllm", "sglang", "peft"])
def test_every_dialects_folder_is_sound(tmp_path, dialect):
    released = write_released_adapter(tmp_path / "a")
    assert find(convert(released, dialect, tmp_path / "b"), Consumer.NATIVE) == ()


def test_an_adapter_that_cannot_be_read_has_no_subject(tmp_path):
    folder, _ = write_case("ADP104", tmp_path)
    read = read_folder(folder)
    assert read.adapter is None
    assert read.problem is read.weights_problem or str(read.problem) == str(read.weights_problem)
