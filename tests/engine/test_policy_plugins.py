"""Policies that other packages bring. Each test installs a package: a folder with a module and its metadata."""

import sys

import pytest

from octavo.config import EngineConfig, SchedulerConfig
from octavo.engine.build import build_core
from octavo.engine.policies import scheduling_policy
from octavo.errors import ConfigError
from octavo.hub import resolve
from octavo.scheduling.policy import SchedulingPolicy
from octavo.scheduling.scheduler import Scheduler
from tests.scheduling.harness import Engine, make_request

SHORTEST_FIRST = """
from octavo.scheduling.policy import SchedulingPolicy

def make(config):
    return SchedulingPolicy(
        name="shortest", sort_key=lambda request: (request.num_prompt_tokens, request.arrival_index)
    )
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Puts a package on the path: install(package, source, policy="module:object", ...)."""

    def install(package, source, **policies):
        folder = tmp_path / package
        info = folder / f"{package}-1.0.dist-info"
        info.mkdir(parents=True)
        (folder / f"{package}.py").write_text(source)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        lines = [f"{name} = {value}" for name, value in policies.items()]
        (info / "entry_points.txt").write_text("\n".join(["[octavo.scheduling_policies]", *lines]) + "\n")
        monkeypatch.syspath_prepend(str(folder))
        monkeypatch.delitem(sys.modules, package, raising=False)

    return install


def refusal(name):
    with pytest.raises(ConfigError) as caught:
        scheduling_policy(SchedulerConfig(scheduling_policy=name))
    return str(caught.value)


def test_a_package_brings_a_policy_and_the_scheduler_follows_it(install):
    install("shortfirst", SHORTEST_FIRST, shortest="shortfirst:make")
    config = SchedulerConfig(scheduling_policy="shortest", max_num_seqs=1, max_num_batched_tokens=32, max_bypasses=0)
    engine = Engine(max_num_seqs=1)
    engine.scheduler = Scheduler(config, engine.manager, 128, scheduling_policy(config))
    engine.add(*[make_request(f"r{length}", length, max_tokens=1) for length in (9, 3, 6)])
    engine.run()
    assert list(engine.finished) == ["r3", "r6", "r9"]


def test_built_in_policies_need_no_plug_ins(install):
    install("imposter", SHORTEST_FIRST, fcfs="imposter:make")
    assert scheduling_policy(SchedulerConfig()).name == "fcfs"
    assert "imposter" not in sys.modules


def test_an_unknown_name_is_refused_with_all_that_are_known(install):
    install("shortfirst", SHORTEST_FIRST, shortest="shortfirst:make")
    problem = refusal("lottery")
    assert "known are fcfs, prefix, priority, shortest" in problem and "octavo.scheduling_policies" in problem


def test_a_policy_that_two_packages_bring_is_refused_naming_both(install):
    install("first", SHORTEST_FIRST, shortest="first:make")
    install("second", SHORTEST_FIRST, shortest="second:make")
    assert "several packages bring one of this name: first, second" in refusal("shortest")


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("import does_not_exist_anywhere", "cannot be loaded: ModuleNotFoundError"),
        ("", "cannot be loaded: AttributeError"),
        ("def make(config):\n    raise ValueError('no luck')", "cannot be loaded: ValueError: no luck"),
        ("def make(config):\n    return 7", "gave a int, not a SchedulingPolicy"),
    ],
)
def test_a_broken_plug_in_is_refused_naming_policy_and_package(install, source, problem):
    install("broken", source, luck="broken:make")
    message = refusal("luck")
    assert message.startswith("scheduling_policy='luck': broken:make of the package broken ") and problem in message


def test_a_plug_in_may_refuse_the_configuration_in_its_own_words(install):
    source = "from octavo.errors import ConfigError\ndef make(config):\n    raise ConfigError('max_num_seqs', 1, 'odd')"
    install("picky", source, picky="picky:make")
    assert refusal("picky") == "max_num_seqs=1: odd"


def test_the_contract_holds_for_what_is_built_in():
    for name in ("fcfs", "priority", "prefix"):
        assert isinstance(scheduling_policy(SchedulerConfig(scheduling_policy=name)), SchedulingPolicy)


def test_a_policy_says_itself_whether_it_reads_priorities(install, tiny_model):
    """Whatever it is called; whoever serves it asks the engine's facts."""
    source = SHORTEST_FIRST.replace("request.num_prompt_tokens", "request.request.priority").replace(
        'name="shortest",', 'name="classes", reads_priority=True,'
    )
    install("classy", source, classes="classy:make")
    for name, reads in (("classes", True), ("priority", True), ("fcfs", False)):
        config = EngineConfig.from_fields({"model": tiny_model, "scheduling_policy": name, "max_model_len": 64})
        core, info = build_core(config, resolve(tiny_model), lambda: 0.0)
        core.close()
        assert (info.scheduling_policy, info.reads_priority) == (name, reads)


def test_what_a_plug_in_raises_is_in_the_log_and_ends_one_request(install, caplog):
    source = SHORTEST_FIRST.replace("(request.num_prompt_tokens", "(1 / (1 - request.stats.num_preemptions)")
    install("moody", source, moody="moody:make")
    engine = Engine(num_blocks=4, block_size=4, max_model_len=16)
    policy = scheduling_policy(SchedulerConfig(scheduling_policy="moody"))
    engine.scheduler = Scheduler(engine.config, engine.manager, 16, policy)
    engine.add(*[make_request(name, 8, max_tokens=6) for name in "ab"])
    engine.run()
    assert engine.finished == {"a": "length", "b": "error"}
    (record,) = caplog.records
    assert record.getMessage() == "the scheduling policy 'shortest' failed" and record.exc_info
