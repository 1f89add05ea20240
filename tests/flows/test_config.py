import pytest

from data.errors import UsageError
from flows.config import STAGES, load_config
from flows.presets import PRESETS, named


def test_every_preset_is_valid_and_cuts_reach_the_stages():
    for name in PRESETS:
        config = load_config(named(name), None, {})
        assert config.learner.t0 == config.cuts.t0
        assert config.cuts.t0 < config.cuts.t1 < config.cuts.t2


def test_stage_inputs_come_from_earlier_stages():
    seen = set()
    for stage in STAGES:
        assert set(stage.inputs) <= seen
        seen.add(stage.name)


def test_every_config_field_is_described():
    for stage in STAGES:
        for name, field in stage.module.Config.model_fields.items():
            assert field.description or name in {"t0", "t1", "t2"}, f"{stage.name}.{name}"


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"sead": 1}, ["sead", "seed"]),
        ({"learner": {"batch_sise": 8}}, ["learner.batch_sise", "batch_size"]),
        ({"seed": "many"}, ["seed", "integer"]),
        ({"cuts": {"t1": "2017-01-01T00:00:00Z"}}, ["t0 < t1 < t2"]),
        ({"events": {"source": "fils"}}, ["events: no source 'fils': did you mean 'files'?\n"]),
        ({"events": {"as_off": "2017-10-01T00:00:00Z"}}, ["unknown key events.as_off: did you mean 'as_of'?"]),
        ({"events": {"late": "ignore"}}, ["events.late", "'stamp' or 'drop'", "'ignore'"]),
        ({"cuts": {"t0": "2017-08-28T00:00:00"}}, ["zone"]),
    ],
)
def test_wrong_keys_and_values_name_the_place_and_the_fix(overrides, words):
    with pytest.raises(UsageError) as caught:
        load_config(named("demo"), None, overrides)
    assert all(word in f"{caught.value}\n" for word in words), str(caught.value)
    assert "Value error" not in str(caught.value)


def test_toml_overrides_one_field_and_keeps_the_rest(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text("seed = 7\n[cuts]\nt2 = 2017-12-04T00:00:00Z\n")
    config = load_config(named("demo"), path, {})
    assert config.seed == 7
    assert config.cuts.t2.month == 12
    assert config.cuts.t0 == load_config(named("demo"), None, {}).cuts.t0


def test_unreadable_toml_is_a_usage_error(tmp_path):
    path = tmp_path / "own.toml"
    with pytest.raises(UsageError, match="found none"):
        load_config(named("demo"), path, {})
    path.write_text("seed = ")
    with pytest.raises(UsageError, match="not readable TOML"):
        load_config(named("demo"), path, {})


def test_execution_fields_do_not_enter_results():
    config = load_config(named("demo"), None, {"threads": 1})
    assert "threads" not in config.result_fields()
    assert "seed" in config.result_fields()


def test_unknown_preset_names_the_nearest():
    with pytest.raises(UsageError, match="demo"):
        named("demmo")
