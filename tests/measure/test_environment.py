import copy
import json
from pathlib import Path

import pytest

from serde_lab.measure.environment import (
    ContainerLimits,
    capture_environment,
    container_kind,
    limits,
    machine_class,
)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict:
    folder = tmp_path_factory.mktemp("results") / "not" / "yet" / "there"
    return capture_environment(folder, {"version": "17.0.9", "origin": "JAVA_HOME"})


def test_it_says_what_a_reader_asks_for(environment: dict) -> None:
    assert json.loads(json.dumps(environment)) == environment
    assert environment["cpu"]["model"]
    assert environment["cpu"]["cores"] >= 1
    assert environment["memory"]["bytes"] > 100e6
    assert environment["disk"]["bytes"] > 0
    assert environment["java"]["version"] == "17.0.9"
    for package in ("pyspark", "pyarrow", "numpy", "fastavro"):
        assert environment["packages"][package], package


def test_it_tells_nobodys_name(environment: dict) -> None:
    text = json.dumps(environment)
    assert str(Path.home()) not in text or str(Path.home()) == "/"
    assert "hostname" not in text


@pytest.fixture
def machine(environment: dict) -> dict:
    """This one, but for sizes by which it might be one of those that a test makes up."""
    made_up = copy.deepcopy(environment)
    made_up["cpu"] |= {"model": "A CPU", "cores": 2, "architecture": "x86_64"}
    made_up["memory"] |= {"bytes": 16_000_000_000, "free_bytes": 9_000_000_000}
    return made_up


def test_a_machine_keeps_its_class_however_busy_it_is(machine: dict) -> None:
    later = copy.deepcopy(machine)
    later["memory"]["free_bytes"] //= 3
    later["memory"]["bytes"] -= 40 << 20  # another kernel keeps more for itself
    later["disk"]["free_bytes"] //= 2
    later["load_average"] = [9.0, 9.0, 9.0]
    later["os"]["kernel"] = "6.99"
    later["packages"]["pyarrow"] = "99"
    assert machine_class(later) == machine_class(machine)


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [
        ("cpu", "model", "Another CPU"),
        ("cpu", "cores", 97),
        ("cpu", "architecture", "riscv64"),
        ("memory", "bytes", 999 << 30),
        ("os", "system", "Plan 9"),
    ],
)
def test_another_machine_has_another_class(
    machine: dict, part: str, key: str, value: object
) -> None:
    other = copy.deepcopy(machine)
    other[part][key] = value
    assert machine_class(other) != machine_class(machine)


@pytest.mark.parametrize(
    ("model", "installed_gib", "name"),
    [
        (
            "Intel(R) Xeon(R) CPU E5-2686 v4 @ 2.30GHz",
            15.6,
            "linux-x86_64-intel-xeon-e5-2686-v4-4c-16g",
        ),
        (
            "AMD EPYC 7763 64-Core Processor",
            23.5,
            "linux-x86_64-amd-epyc-7763-64-core-4c-24g",
        ),
        ("unknown", 0.4, "linux-x86_64-unknown-4c-1g"),
    ],
)
def test_a_class_can_be_read_and_is_the_name_of_a_folder(
    model: str, installed_gib: float, name: str
) -> None:
    made = machine_class(
        {
            "cpu": {"model": model, "architecture": "x86_64", "cores": 4},
            "memory": {"bytes": int(installed_gib * (1 << 30))},
            "os": {"system": "Linux"},
        }
    )
    assert made.startswith(f"{name}-")
    assert "/" not in made
    assert len(made) == len(name) + 9


def tree(root: Path, files: dict[str, str]) -> Path:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({}, ContainerLimits(None, None)),
        (
            {
                "proc/self/cgroup": "0::/\n",
                "sys/fs/cgroup/cpu.max": "150000 100000\n",
                "sys/fs/cgroup/memory.max": "4294967296\n",
            },
            ContainerLimits(1.5, 4 << 30),
        ),
        (
            {
                "proc/self/cgroup": "0::/kube/pod/c\n",
                "sys/fs/cgroup/kube/cpu.max": "800000 100000\n",
                "sys/fs/cgroup/kube/pod/c/cpu.max": "max 100000\n",
                "sys/fs/cgroup/kube/pod/cpu.max": "200000 100000\n",
                "sys/fs/cgroup/kube/pod/c/memory.max": "max\n",
            },
            ContainerLimits(2.0, None),
        ),
        (
            {
                "proc/self/cgroup": "5:cpu,cpuacct:/docker/x\n4:memory:/docker/x\n0::/\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "50000\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "1073741824\n",
            },
            ContainerLimits(0.5, 1 << 30),
        ),
        (
            {
                "proc/self/cgroup": "5:cpu:/\n4:memory:/\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            },
            ContainerLimits(None, None),
        ),
    ],
)
def test_limits_of_a_container(
    tmp_path: Path, files: dict[str, str], found: ContainerLimits
) -> None:
    assert limits(tree(tmp_path, files)) == found


def test_kinds_of_container(tmp_path: Path) -> None:
    assert container_kind(tmp_path, {}) == ""
    assert container_kind(tmp_path, {"KUBERNETES_SERVICE_HOST": "h"}) == "kubernetes"
    tree(tmp_path, {"run/.containerenv": ""})
    assert container_kind(tmp_path, {}) == "podman"
    tree(tmp_path, {".dockerenv": ""})
    assert container_kind(tmp_path, {}) == "docker"
