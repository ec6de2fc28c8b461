"""What is asked, under which launch it is judged, and what verdicts come to."""

import json
import shlex
import shutil
from pathlib import Path

import pytest

from checks.adapter_folders import write_adapter
from inkling_cli.checks.adapter import Consumer, make_subject
from inkling_cli.checks.adapter.folder import read_folder
from inkling_cli.checks.effect import Effect, Fate, by_reason, module_name
from inkling_cli.checks.engine import Engine
from inkling_cli.checks.finding import Severity
from inkling_cli.checks.stage import Stage
from inkling_cli.checks.verdicts.judged_launch import resolve
from inkling_cli.checks.verdicts.judging import judge_adapter
from inkling_cli.checks.verdicts.question import Load, make_question, with_adapter
from inkling_cli.checks.verdicts.verdict import Outcome, Verdict
from inkling_runtime.errors import InklingError
from shards import shard, split_weights

ALL = tuple(Consumer)


def ask(*consumers, words=(), file=None, version=None, model=None, load=Load.STARTUP, env=()):
    return make_question(
        consumers=consumers,
        version=version,
        model=model,
        words=shlex.split(words) if isinstance(words, str) else words,
        file=file,
        load=load,
        env=env,
    )


def judge(path, question):
    folder = read_folder(path)
    subject = None if folder.adapter is None else make_subject(folder.adapter, question.spec)
    return judge_adapter(folder, subject, question)


def verdict_of(path, *consumers, **asked):
    (verdict,) = judge(path, ask(*consumers, **asked)).verdicts
    return verdict


class TestQuestion:
    def test_all_consumers_are_asked_by_default(self):
        assert ask().consumers == ALL

    def test_the_engine_of_the_launch_is_asked_by_default(self):
        assert ask(words="vllm serve MODEL --enable-lora").consumers == (Consumer.VLLM,)

    def test_consumers_are_asked_once(self):
        assert ask(Consumer.PEFT, Consumer.PEFT).consumers == (Consumer.PEFT,)

    def test_bare_options_get_program_model_and_lora(self):
        launch = ask(Consumer.VLLM, words="--max-loras 2", model=None).launch
        assert (launch.engine, launch.model) == (Engine.VLLM, "MODEL")
        assert launch.is_on("--enable-lora")
        assert launch.text("--max-loras") == "2"

    def test_a_whole_command_is_left_as_it_is(self):
        launch = ask(words="INKLING_MULTIMEM_AR=0 vllm serve MODEL").launch
        assert not launch.is_on("--enable-lora")
        assert launch.variable("INKLING_MULTIMEM_AR") == "0"

    def test_nothing_is_inherited_but_what_is_given(self, monkeypatch):
        monkeypatch.setenv("INKLING_MULTIMEM_AR", "0")
        launch = ask(Consumer.VLLM, words="--enable-lora", env=["A=b"]).launch
        assert set(launch.variables) == {"A"}

    def test_a_launch_is_read_from_a_file(self, tmp_path, world):
        script = tmp_path / "serve.sh"
        script.write_text(f"sglang serve --model-path {world / 'model'} --lora-paths a=b\n")
        question = ask(file=script)
        assert question.consumers == (Consumer.SGLANG,)
        assert question.spec is not None

    @pytest.mark.parametrize(
        ("asked", "message"),
        [
            ({"words": "--enable-lora"}, "not of which one"),
            ({"words": "--enable-lora", "consumers": ["vllm", "sglang"]}, "not of which one"),
            ({"words": "vllm serve M", "consumers": ["sglang"]}, "the launch starts vLLM"),
            ({"words": "vllm serve M", "consumers": ["vllm", "sglang"]}, "the launch starts vLLM"),
            ({"words": "vllm serve M", "file": Path("x.sh")}, "expected one of them"),
            ({"version": "0.33.0"}, "is given for 4 engines"),
            ({"version": "1", "consumers": ["native"]}, "is this very tool"),
            ({"file": Path("nothing.sh")}, "`nothing.sh` does not exist"),
            ({"model": Path("nowhere/config.json")}, "`nowhere/config.json` does not exist"),
        ],
        ids=str,
    )
    def test_contradictions_are_errors(self, asked, message):
        consumers = map(Consumer, asked.pop("consumers", ()))
        with pytest.raises(InklingError, match=message):
            ask(*consumers, **asked)

    def test_several_launches_are_too_many(self, tmp_path):
        script = tmp_path / "both.sh"
        script.write_text("vllm serve a --enable-lora &\nsglang serve b\n")
        with pytest.raises(InklingError, match="holds 2 launches"):
            ask(file=script)


class TestAdapterInLaunch:
    def launch(self, words):
        return ask(words=words).launch

    def test_it_is_added_to_those_of_the_launch(self, tmp_path):
        launch = self.launch("vllm serve M --enable-lora --lora-modules other=x")
        added, ref = with_adapter(launch, tmp_path / "mine", Load.STARTUP)
        assert [a.name for a in added.adapters] == ["other", "mine"]
        assert added.values("--lora-modules") == ("other=x", f"mine={tmp_path / 'mine'}")
        assert ref.at_startup

    def test_the_one_that_is_there_is_meant(self, tmp_path):
        launch = self.launch(f"vllm serve M --enable-lora --lora-modules a={tmp_path}")
        assert with_adapter(launch, tmp_path, Load.DYNAMIC) == (launch, launch.adapters[0])

    def test_its_name_is_free(self, tmp_path):
        launch = self.launch("vllm serve M --enable-lora --lora-modules mine=x")
        _, ref = with_adapter(launch, tmp_path / "mine", Load.STARTUP)
        assert ref.name == "mine-2"

    def test_a_path_that_is_no_plain_entry_is_written_as_json(self, tmp_path):
        launch = self.launch("sglang serve --model-path M --enable-lora")
        added, _ = with_adapter(launch, tmp_path / "a=b, c", Load.STARTUP)
        (entry,) = added.values("--lora-paths")
        assert entry.startswith('{"lora_name": "a=b, c"')

    def test_loaded_later_it_is_no_option(self, tmp_path):
        launch = self.launch("sglang serve --model-path M --enable-lora")
        added, ref = with_adapter(launch, tmp_path, Load.DYNAMIC)
        assert not ref.at_startup
        assert added.use("--lora-paths") is None


class TestAssumedLaunch:
    def resolved(self, path, engine, **asked):
        return resolve(read_folder(path), engine, ask(Consumer(engine.value), **asked))

    def test_vllm_gets_what_shared_outer_experts_need(self, world):
        launch = self.resolved(world / "adapters/for-vllm", Engine.VLLM, model=world / "model")
        assert dict(launch.required.flags) == {
            "--enable-lora": "",
            "--max-lora-rank": "8",
            "--enable-moe-shared-loras": "",
        }
        assert dict(launch.required.env) == {"INKLING_MULTIMEM_AR": "0"}
        assert launch.assumed.startswith("INKLING_MULTIMEM_AR=0 vllm serve ")

    def test_a_rank_above_every_limit_is_asked_for_as_it_is(self, world):
        launch = self.resolved(world / "adapters/rank1024", Engine.VLLM)
        assert launch.required.flags["--max-lora-rank"] == "1024"

    def test_one_by_one_experts_need_no_flag(self, world):
        launch = self.resolved(world / "adapters/one-by-one", Engine.VLLM)
        assert "--enable-moe-shared-loras" not in launch.required.flags

    def test_sglang_finds_out_by_itself_at_startup(self, world):
        launch = self.resolved(world / "adapters/released", Engine.SGLANG)
        assert dict(launch.required.flags) == {"--enable-lora": "", "--lora-backend": "triton"}

    def test_sglang_must_be_told_later(self, world):
        launch = self.resolved(world / "adapters/released", Engine.SGLANG, load=Load.DYNAMIC)
        assert launch.required.flags["--experts-shared-outer-loras"] == ""
        assert launch.required.flags["--max-lora-rank"] == "2"
        targets = launch.required.flags["--lora-target-modules"].split()
        assert targets == ["qkvr", "wo_ud", "gate_up_proj", "down_proj", "lm_head"]
        assert "--lora-paths" not in launch.assumed

    def test_a_variable_that_the_user_gives_wins(self, world):
        path = world / "adapters/for-vllm"
        launch = self.resolved(path, Engine.VLLM, env=["INKLING_MULTIMEM_AR=1"])
        assert launch.subject.launch.variable("INKLING_MULTIMEM_AR") == "1"


class TestVerdicts:
    @pytest.mark.parametrize(
        ("fates", "outcome"),
        [
            ("applied applied", Outcome.APPLIED),
            ("applied dropped", Outcome.PARTIAL),
            ("applied misapplied", Outcome.PARTIAL),
            ("misapplied", Outcome.PARTIAL),
            ("dropped dropped", Outcome.NONE),
            ("dropped not_checked", Outcome.PARTIAL),
            ("applied not_checked", Outcome.NOT_CHECKED),
            ("applied refused", Outcome.REFUSED),
            ("", Outcome.NOT_CHECKED),
        ],
    )
    def test_outcome_is_that_of_the_fates(self, fates, outcome):
        effects = tuple(Effect(str(i), Fate(fate)) for i, fate in enumerate(fates.split()))
        assert Verdict("a", Consumer.VLLM, None, effects).outcome is outcome

    def test_a_stage_is_a_refusal(self):
        effects = (Effect("a", Fate.APPLIED),)
        verdict = Verdict("a", Consumer.VLLM, None, effects, Stage.WRAP)
        assert verdict.outcome is Outcome.REFUSED

    def test_every_module_has_one_fate(self, world):
        for name in ("released", "for-vllm", "misnamed", "packed", "dora"):
            path = world / "adapters" / name
            modules = {module_name(t) for t in read_folder(path).adapter.file.tensors}
            for verdict in judge(path, ask(model=world / "model")).verdicts:
                found = [module for fate in Fate for module in verdict.modules(fate)]
                assert sorted(found) == sorted(modules), (name, verdict.consumer)

    def test_a_refusing_launch_refuses_every_module(self, world):
        verdict = verdict_of(
            world / "adapters/for-vllm", Consumer.VLLM, words="--max-loras 1", model=world / "model"
        )
        assert (verdict.outcome, verdict.stage) == (Outcome.REFUSED, Stage.ENGINE_CONFIG)
        assert {effect.fate for effect in verdict.effects} == {Fate.REFUSED}
        assert verdict.launch is None

    def test_without_a_model_nothing_passes(self, world):
        for verdict in judge(world / "adapters/released", ask()).verdicts:
            assert not verdict.modules(Fate.APPLIED)
            assert verdict.outcome is not Outcome.APPLIED
            assert "--model" in verdict.not_checked[0]

    def test_an_adapter_that_cannot_be_read_is_refused_or_not_checked(self, world):
        for verdict in judge(world / "adapters/torn", ask(model=world / "model")).verdicts:
            assert verdict.outcome in (Outcome.REFUSED, Outcome.NOT_CHECKED)
            assert not verdict.effects

    def test_memory_of_a_slot_is_that_of_the_plan(self, world):
        verdict = verdict_of(world / "adapters/for-vllm", Consumer.VLLM, model=world / "model")
        hidden, rank, layers = 96, 8, 3
        assert verdict.slot_bytes["wo"] == 2 * layers * rank * (128 + hidden)

    def test_another_version_of_a_library_is_not_passed_off_as_known(self, world):
        path = world / "adapters/released"
        verdict = verdict_of(path, Consumer.PEFT, model=world / "model", version="0.19.0")
        assert verdict.version == "0.19.0"
        assert any("judged as 0.21.2" in what for what in verdict.not_checked)

    def test_the_runtime_applies_an_adapter_whole_or_not_at_all(self, world):
        good = verdict_of(world / "adapters/released", Consumer.NATIVE, model=world / "model")
        bad = verdict_of(world / "adapters/dora", Consumer.NATIVE, model=world / "model")
        assert good.outcome is Outcome.APPLIED
        assert bad.outcome is Outcome.REFUSED


@pytest.mark.parametrize("with_index", [True, False])
@pytest.mark.parametrize("count", [1, 3])
class TestShards:
    """SGLang reads all files of the folder and no index, vLLM and PEFT the one file alone."""

    @pytest.fixture
    def adapter(self, tmp_path, count, with_index):
        return split_weights(write_adapter(tmp_path / "a"), count, with_index=with_index)

    def judged(self, adapter, world, consumer):
        judgement = judge(adapter, ask(consumer, model=world / "model"))
        (verdict,) = judgement.verdicts
        errors = {f.code for f in judgement.findings if f.severity is Severity.ERROR}
        return verdict, errors

    @pytest.mark.parametrize("consumer", [Consumer.SGLANG, Consumer.NATIVE])
    def test_who_reads_them_applies_them(self, adapter, world, consumer):
        verdict, errors = self.judged(adapter, world, consumer)
        assert (verdict.outcome, errors) == (Outcome.APPLIED, set())

    @pytest.mark.parametrize(
        ("consumer", "code"), [(Consumer.VLLM, "VLM215"), (Consumer.PEFT, "PFA017")]
    )
    def test_who_does_not_read_them_refuses_the_adapter(self, adapter, world, consumer, code):
        verdict, errors = self.judged(adapter, world, consumer)
        assert verdict.outcome is Outcome.REFUSED
        assert {effect.fate for effect in verdict.effects} == {Fate.REFUSED}
        assert code in errors

    def test_peft_refuses_them_on_any_model(self, adapter):
        assert verdict_of(adapter, Consumer.PEFT).outcome is Outcome.REFUSED

    @pytest.mark.parametrize("consumer", Consumer)
    def test_the_one_file_beside_them_is_judged(self, tmp_path, world, count, with_index, consumer):
        alone = write_adapter(tmp_path / "alone")
        folder = write_adapter(tmp_path / "a")
        split_weights(folder, count, with_index=with_index, keeps_single=True)
        expected, others = (self.judged(f, world, consumer) for f in (alone, folder))
        assert others[0].effects == expected[0].effects
        assert others[1] == expected[1]

    def test_one_that_is_torn_lets_nobody_apply_the_adapter(self, adapter, world):
        (adapter / shard(1, 3)).write_bytes(b"torn")
        if not (adapter / shard(2, 3)).exists():
            (adapter / shard(1, 1)).write_bytes(b"torn")
        for verdict in judge(adapter, ask(model=world / "model")).verdicts:
            assert verdict.outcome in (Outcome.REFUSED, Outcome.NOT_CHECKED)

    def test_a_setting_that_refuses_is_told_of_them_too(self, tmp_path, world, count, with_index):
        folder = write_adapter(tmp_path / "a", lora_alpha="high")
        split_weights(folder, count, with_index=with_index)
        verdict, errors = self.judged(folder, world, Consumer.SGLANG)
        assert (verdict.outcome, errors) == (Outcome.REFUSED, {"ADP106"})

    def test_an_index_of_a_checkpoint_must_list_them(self, adapter, world):
        names = [path.name for path in adapter.glob("*.safetensors")]
        index = adapter / "model.safetensors.index.json"
        index.write_text(json.dumps({"weight_map": {name: name for name in names}}))
        assert self.judged(adapter, world, Consumer.SGLANG)[0].outcome is Outcome.APPLIED
        index.write_text(json.dumps({"weight_map": {}}))
        verdict, errors = self.judged(adapter, world, Consumer.SGLANG)
        assert (verdict.outcome, errors) == (Outcome.REFUSED, {"SGL217"})

    def test_a_stray_file_beside_them_is_part_of_them_to_sglang(self, adapter, world):
        stray = world / "adapters/second-file-stray/more.safetensors"
        shutil.copy(stray, adapter)
        verdict, errors = self.judged(adapter, world, Consumer.SGLANG)
        expected, same = self.judged(stray.parent, world, Consumer.SGLANG)
        assert (verdict.outcome, verdict.stage, errors) == (expected.outcome, expected.stage, same)


def test_reasons_leave_out_what_is_applied():
    effects = [
        Effect("a", Fate.APPLIED),
        Effect("b", Fate.DROPPED, "x", "why"),
        Effect("c", Fate.DROPPED, "x", "why"),
    ]
    assert by_reason(effects) == {(Fate.DROPPED, "x", "why"): ["b", "c"]}


@pytest.mark.parametrize(
    ("tensor", "module"),
    [
        ("a.b.lora_A.weight", "a.b"),
        ("a.b.lora_B.default.weight", "a.b"),
        ("a.lora_embedding_A", "a"),
        ("lm_head.base_layer.weight", "lm_head.base_layer.weight"),
        ("a.lora_magnitude_vector", "a.lora_magnitude_vector"),
    ],
)
def test_a_module_is_its_tensors_name_without_the_factor(tensor, module):
    assert module_name(tensor) == module


def test_a_file_in_the_folder_stands_for_it(tmp_path):
    folder = write_adapter(tmp_path / "a")
    assert read_folder(folder / "adapter_config.json").path == folder
