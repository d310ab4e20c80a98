from __future__ import annotations

from pathlib import Path

import pytest

from twinlens.training.config import TrainConfig, read_config
from twinlens.training.errors import ConfigError
from twinlens.training.sections.data import CaptionsData, FolderData, ScenesData, ShardsData

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
MINIMAL = '[data]\nsource = "scenes"\n[model]\nopen_clip = "RN50"\n'


def written(folder: Path, text: str) -> Path:
    path = folder / "clip.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("clip.toml", ScenesData),
        ("clip-captions.toml", CaptionsData),
        ("clip-labels.toml", FolderData),
        ("clip-shards.toml", ShardsData),
    ],
)
def test_the_examples_are_valid(name: str, data: type) -> None:
    assert isinstance(read_config(EXAMPLES / name).data, data)


@pytest.mark.parametrize("name", ["clip", "clip-captions", "clip-from-images", "clip-labels", "clip-shards"])
def test_a_recorded_configuration_reads_back_as_it_was(name: str) -> None:
    config = read_config(EXAMPLES / f"{name}.toml")
    assert TrainConfig.model_validate_json(config.model_dump_json()) == config


def test_shards_lie_beside_the_file_or_at_an_address(tmp_path: Path) -> None:
    model = '[model]\nopen_clip = "RN50"\n'
    for given, expected in [
        ("s/{0..3}.tar", str(tmp_path / "s/{0..3}.tar")),
        ("https://host/{0..3}.tar", "https://host/{0..3}.tar"),
    ]:
        config = read_config(written(tmp_path, f'[data]\nsource = "shards"\npath = "{given}"\n{model}'))
        assert isinstance(config.data, ShardsData)
        assert config.data.path == expected


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    text = (
        '[data]\nsource = "captions"\npath = "c.jsonl"\nimages = "photos"\n'
        '[model]\nfrom_checkpoint = "../run/checkpoint.pt"\n[hard_negatives]\nmanifest = "/abs/mined.parquet"\n'
    )
    config = read_config(written(tmp_path, text))
    assert isinstance(config.data, CaptionsData)
    assert config.data.path == tmp_path / "c.jsonl"
    assert config.data.images == tmp_path / "photos"
    assert config.model.from_checkpoint == tmp_path / "../run/checkpoint.pt"
    assert config.hard_negatives is not None
    assert config.hard_negatives.manifest == Path("/abs/mined.parquet")


def test_the_configuration_is_frozen(tmp_path: Path) -> None:
    config = read_config(written(tmp_path, MINIMAL))
    with pytest.raises(ValueError, match="frozen"):
        config.train.steps = 5


def test_the_digest_follows_the_values_not_the_layout(tmp_path: Path) -> None:
    one = read_config(written(tmp_path, MINIMAL)).digest()
    assert one == read_config(written(tmp_path, "# a comment\n" + MINIMAL + "\n[train]\n")).digest()
    assert one != read_config(written(tmp_path, MINIMAL + "[train]\nseed = 1\n")).digest()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"data is missing \(and 1 more\)"),
        ("[data", "is not TOML"),
        (MINIMAL + "[train]\nstepz = 5\n", "unknown key train.stepz"),
        (MINIMAL.replace("source", "kind"), "data.source is missing"),
        (
            MINIMAL.replace("scenes", "webdataset"),
            "data.source must be 'scenes', 'captions', 'folder', 'shards' or 'collection'",
        ),
        (MINIMAL.replace('"scenes"', '"scenes"\npath = "x"'), "unknown key data.path"),
        ('[data]\nsource = "captions"\n[model]\nopen_clip = "x"\n', "data.path is missing"),
        (MINIMAL + 'from_checkpoint = "c.pt"\n', r"model: give exactly one of .*found: 2"),
        (MINIMAL.replace('open_clip = "RN50"', ""), r"model: give exactly one of .*found: 0"),
        (
            MINIMAL.replace('open_clip = "RN50"', 'from_checkpoint = "c.pt"\nposition_std = 1'),
            "a checkpoint keeps its own",
        ),
        (MINIMAL + "[train]\nseed = 4294967296\n", "train.seed: .*found 4294967296"),
        (MINIMAL + '[train]\nsteps = "many"\n', "train.steps: .*found 'many'"),
        (MINIMAL + "[train]\nthreads = 1000000\n", "train.threads: .*less than or equal to 1024"),
        (MINIMAL + "[train]\nlearning_rate = 0\n", "train.learning_rate: .*found 0"),
        (MINIMAL + '[train]\nprecision = "fp8"\n', "train.precision: .*found 'fp8'"),
        (
            MINIMAL + "[tuning]\nlock_image = -1\n",
            r"tuning.lock_image: input should be a valid boolean or greater than or equal to 0, found -1$",
        ),
        (
            MINIMAL + '[tuning]\nlock_image = "no"\nlayer_decay = 2\n',
            r"tuning.lock_image: input should be a valid boolean or a valid integer, found 'no' \(and 1 more\)$",
        ),
        ('[data]\nsource = "folder"\npath = "a"\nlimit = 0\n', r": data\.limit: .*found 0"),
        ('[data]\nsource = "folder"\npath = "a"\ntemplates = 5\n', r": data\.templates: .*found 5"),
        ('[data]\nsource = "shards"\npath = "a"\nstreming = true\n', r"key data\.streming; perhaps data\.streaming"),
        (MINIMAL + '[hard_negatives]\nmanifest = "m"\ntexts_per_anchor = 0\n', "are all 0"),
        (
            MINIMAL + '[hard_negatives]\nmanifest = "m"\ntexts_per_anchor = 0\npairs_per_anchor = 1\nweight = 2.0\n',
            "confined and weight are for negatives that are nothing else",
        ),
        (MINIMAL + "[hard_negatives]\nwrong_captions_per_anchor = 1\nwindow = 0.5\n", "window is for mined negatives"),
    ],
)
def test_mistakes_are_told_in_one_line_that_names_the_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        read_config(written(tmp_path, text))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("section", "key"),
    [("data", "path"), ("data", "images"), ("model", "from_checkpoint"), ("hard_negatives", "manifest")],
)
def test_an_empty_name_is_not_the_folder_of_the_file(tmp_path: Path, section: str, key: str) -> None:
    content = {
        "data": {"source": "captions", "path": "pairs.csv"},
        "model": {"from_checkpoint": "a.pt"},
        "hard_negatives": {"manifest": "mined.parquet"},
    }
    content[section][key] = ""
    path = tmp_path / "run.toml"
    path.write_text(
        "".join(
            f"[{name}]\n" + "".join(f'{one} = "{value}"\n' for one, value in table.items())
            for name, table in content.items()
        )
    )
    with pytest.raises(ConfigError, match=f"{section}.{key}: it names nothing; give a file or a folder"):
        read_config(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no configuration at .*clip\.toml"):
        read_config(tmp_path / "clip.toml")
