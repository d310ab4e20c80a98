from __future__ import annotations

from pathlib import Path

import pytest

from twinlens.training.augment.ablation import Ablation
from twinlens.training.errors import ConfigError
from twinlens.training.image_config import ImageTrainConfig, read_image_config, recipe_text
from twinlens.training.methods.registry import IMAGE_METHODS, image_method
from twinlens.training.run_records import check_same_run

PHOTOS = Path("photos")


@pytest.mark.parametrize("method", IMAGE_METHODS)
def test_every_method_has_a_recipe_that_is_valid_as_it_is(method: str) -> None:
    config = read_image_config(method, pictures=PHOTOS)
    kind = image_method(method)
    assert (config.method, config.data.path) == (method, PHOTOS)
    assert kind.wanted_global_views in {None, config.augment.global_views}
    assert kind.takes_local_views or config.augment.local_views == 0
    assert kind.name == method


@pytest.mark.parametrize("method", IMAGE_METHODS)
def test_a_recorded_configuration_reads_back_as_it_was(method: str) -> None:
    config = read_image_config(method, pictures=PHOTOS)
    again = ImageTrainConfig.model_validate_json(config.model_dump_json())
    assert again == config
    assert again.digest() == config.digest()


def test_the_file_goes_over_the_recipe_and_settings_over_both(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        '[data]\npath = "photos"\n[knn]\ntest = "test"\n[method]\ntemperature = 0.2\n[train]\nbatch_size = 32\n'
        "steps = 7\n"
    )
    recipe = read_image_config("simclr", pictures=PHOTOS)
    config = read_image_config("simclr", file, settings=["train.batch_size=64", "model.timm=resnet34"])
    assert (config.data.path, config.knn.test) == (tmp_path / "photos", tmp_path / "test")
    assert (config.train.batch_size, config.train.steps, config.model.timm) == (64, 7, "resnet34")
    assert config.train.learning_rate == recipe.train.learning_rate
    assert config.augment == recipe.augment
    assert config.method_options == recipe.method_options | {"temperature": 0.2}
    assert read_image_config("simclr", file, pictures=Path("others")).data.path == Path("others")


def test_settings_take_values_of_toml_and_plain_words() -> None:
    config = read_image_config(
        "simclr",
        pictures=PHOTOS,
        settings=[
            "train.learning_rate = 1e-2",
            'model.name = "mine"',
            "model.stem=cifar",
            "model.arguments.channels=[8, 8, 16, 16]",
            "model.mean=[0.5, 0.5, 0.5]",
            "data.path=/a=b",
        ],
    )
    assert config.train.learning_rate == 0.01
    assert (config.model.name, config.model.stem, config.model.mean) == ("mine", "cifar", (0.5, 0.5, 0.5))
    assert config.model.arguments["channels"] == [8, 8, 16, 16]
    assert config.data.path == Path("/a=b")


def test_of_steps_and_epochs_the_one_given_last_counts(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('[data]\npath = "photos"\n[train]\nsteps = 7\n')
    for settings, expected in (
        (["train.epochs=3"], (None, 3)),
        (["train.epochs=3", "train.steps=9"], (9, 3)),
        (["train.steps=9", "train.epochs=3"], (None, 3)),
    ):
        train = read_image_config("simclr", file, settings=settings).train
        assert (train.steps, train.epochs) == expected
    # `random` takes no step, whatever a file for all methods says.
    file.write_text('[data]\npath = "photos"\n[train]\nepochs = 7\n')
    assert read_image_config("random", file, settings=["train.epochs=3"]).train.steps == 0


@pytest.mark.parametrize("key", ["data.path", "data.images", "knn.test"])
def test_an_empty_name_is_not_the_folder_of_the_file(tmp_path: Path, key: str) -> None:
    section, name = key.split(".")
    path = tmp_path / "run.toml"
    path.write_text(f'[{section}]\n{name} = ""\n')
    message = f"{key}: it names nothing; give a file or a folder"
    with pytest.raises(ConfigError, match=message):
        read_image_config("simclr", path, settings=[] if key == "data.path" else ["data.path=photos"])
    with pytest.raises(ConfigError, match=message):
        read_image_config("simclr", settings=["data.path=photos", f'{key}=""'])


def test_an_ablation_changes_the_views_and_the_digest() -> None:
    whole, crop = (read_image_config("simclr", pictures=PHOTOS, ablate=keep) for keep in (None, Ablation.CROP))
    assert all(view.jitter is None and view.grayscale == 0 and view.blur is None for view in crop.augment.views)
    assert crop.augment.views[0].crop_scale == whole.augment.views[0].crop_scale
    assert crop.digest() != whole.digest()


@pytest.mark.parametrize(
    ("content", "settings", "message"),
    [
        ("[data]\npath = 'a'\n[train]\nbatchsize = 3", [], "unknown key train.batchsize; perhaps train.batch_size"),
        ("[data]\npath = 'a'\n[method]\ntau = 3", [], "unknown key method.tau$"),
        ("[data]\npath = 'a'\n[metod]\ntau = 3", [], "unknown key metod; perhaps method, model"),
        ("[data]\npath = 'a'\n[method_options]\ntau = 3", [], "unknown key method_options"),
        ("[train]\nsteps = 3", [], "data.path is missing: name the pictures in the file or with --images"),
        ("data = 3", [], "data: input should be a valid dictionary"),
        ("[data\npath = 3", [], "is not TOML"),
        ("[data]\npath = 'a'", ["train.batch_size=many"], "train.batch_size: .*found 'many'"),
        ("[data]\npath = 'a'", ["train.learning_rate=0"], "train.learning_rate: .*greater than 0, found 0"),
        ("[data]\npath = 'a'", ["train.learning_rate=nan"], "train.learning_rate: "),
        ("[data]\npath = 'a'", ["model.std=[0, 1, 1]"], "model.std.0: .*greater than 0"),
        ("[data]\npath = 'a'", ["model.name=a b"], "model.name: "),
        ("[data]\npath = 'a'", ["train.threads=1000000"], "train.threads: .*less than or equal to 1024"),
        ("[data]\npath = 'a'", ["method.temperature=0"], "method.temperature: "),
        ("[data]\npath = 'a'", ["train.steps"], "--set takes SECTION.KEY=VALUE, .* found 'train.steps'"),
        ("[data]\npath = 'a'", ["=3"], "--set takes SECTION.KEY=VALUE"),
        ("[data]\npath = 'a'", ["train..steps=3"], "--set takes SECTION.KEY=VALUE"),
        ("[data]\npath = 'a'", ["train=3"], "train: "),
        ("[data]\npath = 'a'", ["method=byol"], "method: "),
        ("[data]\npath = 'a'", ["knn.every_epochs=inf"], "knn.every_epochs: "),
        ("[data]\npath = 'a'", ["train.epochs=inf"], "train.epochs: "),
        ("[data]\npath = 'a'", ["model.std=[1e-300, 1, 1]"], "model: mean and std are on the scale 0 to 1"),
        ("[data]\npath = 'a'", ["model.mean=[1e300, 1, 1]"], "model: mean and std are on the scale 0 to 1"),
        ("[data]\npath = 'a'", ["knn.temperature=1e-300"], "knn.temperature: .*greater than or equal to 0.001"),
        ("[data]\npath = 'a'", ["augment.views=[{count=1000000}]"], "augment: views: at most 64 of a picture"),
    ],
)
def test_what_is_wrong_is_named_by_its_key(tmp_path: Path, content: str, settings: list[str], message: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(content)
    with pytest.raises(ConfigError, match=message) as raised:
        read_image_config("simclr", file, settings=settings)
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("method", "setting"),
    [("swav", "iterations"), ("simsiam", "layers"), ("mae", "decoder_depth"), ("jigsaw", "channel_shift")],
)
def test_what_is_counted_through_one_by_one_has_an_upper_bound(method: str, setting: str) -> None:
    with pytest.raises(ConfigError, match=rf"method.{setting}: .*less than or equal to \d+, found 1000000000"):
        read_image_config(method, pictures=PHOTOS, settings=[f"method.{setting}=1000000000"])


def test_an_unknown_method_names_its_neighbours() -> None:
    with pytest.raises(ConfigError, match="there is no method 'simlcr'; perhaps simclr"):
        read_image_config("simlcr", pictures=PHOTOS)
    with pytest.raises(ConfigError, match="there is no method"):
        recipe_text("../clip")


def test_the_configuration_of_a_run_is_read_from_its_folder(tmp_path: Path) -> None:
    config = read_image_config("moco", pictures=PHOTOS, settings=["train.steps=5"])
    (tmp_path / "config.json").write_text(config.model_dump_json())
    assert read_image_config("moco", run=tmp_path) == config
    with pytest.raises(ConfigError, match="is a run of moco; it cannot go on as byol"):
        read_image_config("byol", run=tmp_path)
    (tmp_path / "config.json").write_text('{"method": "moco"}')
    with pytest.raises(ConfigError, match=r"config.json: data is missing"):
        read_image_config("moco", run=tmp_path)


def test_a_run_that_goes_on_differs_only_by_what_is_given_anew(tmp_path: Path) -> None:
    config = read_image_config(
        "simclr",
        pictures=PHOTOS,
        settings=["train.steps=5", "augment.size=32", "method.temperature=0.3"],
        ablate=Ablation.CROP,
    )
    (tmp_path / "config.json").write_text(config.model_dump_json())
    same = ["augment.size=32", "method.temperature=0.3"]
    assert read_image_config("simclr", pictures=PHOTOS, settings=same, ablate=Ablation.CROP, run=tmp_path) == config
    for pictures, settings, message in (
        (PHOTOS, ["train.batch_size=32"], "with train.batch_size = 256; it cannot go on with 32: leave it out"),
        (None, ["train.steps=80"], "with train.steps = 5; it cannot go on with 80"),
        (None, ["train.epochs=7"], "with train.epochs = 100.0; it cannot go on with 7.0"),
        (None, ["method.temperature=0.1"], "with method.temperature = 0.3; it cannot go on with 0.1"),
        (Path("others"), [], f"with data.path = {PHOTOS}; it cannot go on with others"),
    ):
        changed = read_image_config("simclr", pictures=pictures, settings=settings, run=tmp_path)
        with pytest.raises(ConfigError, match=message):
            check_same_run(tmp_path, changed.model_dump(mode="json"))
    with pytest.raises(ConfigError, match=r"^simclr: unknown key train.step; perhaps train.steps"):
        read_image_config("simclr", settings=["train.step=9"], run=tmp_path)
