"""Accelerate's settings as overrides of a configuration: what `accelerate launch` hands to the script in
ACCELERATE_FP8_*, and recipe objects of kwargs_handlers. docs/import_keys.csv has the same keys for files."""
import os

from .errors import InvalidError, UnsupportedError

PREFIX = "ACCELERATE_FP8_"
_BACKENDS = {"te": "te", "msamp": "msamp", "ao": "te"}
_PRODUCTS = ("fprop", "dgrad", "wgrad")
_HISTORY = ("margin", "interval", "amax_history_len", "amax_compute_algo")


def _boolean(name, text):
    if text.lower() not in ("true", "false", "1", "0", "yes", "no", "y", "n", "t", "f", "on", "off"):
        raise InvalidError(f"{name}: expected true or false, found {text!r}; correct it, or unset it")
    return text.lower() in ("true", "1", "yes", "y", "t", "on")


def _integer(name, text):
    try:
        return int(text)
    except ValueError:
        raise InvalidError(f"{name}: expected a whole number, found {text!r}; correct it, or unset it") from None


def _te(settings):
    """The keys fp8.te.* of {name without prefix: text}."""
    found = {}

    def take(name, key, of):
        if name in settings:
            found[f"fp8.te.{key}"] = of(PREFIX + name, settings[name])

    take("FORMAT", "fp8_format", lambda _, text: text.upper())
    take("MARGIN", "margin", _integer)
    take("AMAX_HISTORY_LEN", "amax_history_len", _integer)
    take("AMAX_COMPUTE_ALGO", "amax_compute_algo", lambda _, text: text.lower())
    take("USE_AUTOCAST_DURING_EVAL", "use_autocast_during_eval", _boolean)
    high = {p: f"OVERRIDE_{p.upper()}" for p in _PRODUCTS}
    if any(name in settings for name in high.values()):
        kept = [p for p, name in high.items() if _boolean(PREFIX + name, settings.get(name, "false"))]
        found["fp8.te.override_linear_precision"] = ",".join(kept) or "none"
    take("INTERVAL", "interval", _integer)
    if found.get("fp8.te.interval", 1) != 1:
        raise UnsupportedError(f"{PREFIX}INTERVAL: expected 1, found {settings['INTERVAL']}: scales are computed in "
                               "every step; set --fp8_interval 1")
    mx = _boolean(PREFIX + "USE_MXFP8_BLOCK_SCALING", settings.get("USE_MXFP8_BLOCK_SCALING", "false"))
    if mx:  # the recipe has no history
        return {"fp8.te.recipe": "mx", **{k: v for k, v in found.items() if k.split(".")[-1] not in _HISTORY}}
    return {"fp8.te.recipe": "delayed", "fp8.te.amax_history_len": 1024, **found}


def overrides(environment):
    """The overrides of ACCELERATE_FP8_* in a mapping of names to texts.

    Without ACCELERATE_FP8_BACKEND the backend is te, as in `octavo init --from`. Only the launcher's settings for the chosen
    backend count: it always exports the defaults of all. Where Octavo's default differs from Accelerate's, it is Accelerate's:
    a history of 1024, and the head in FP8. Raises InvalidError and UnsupportedError by the name of the variable.
    """
    settings = {name.removeprefix(PREFIX): text for name, text in environment.items() if name.startswith(PREFIX)}
    backend = settings.get("BACKEND", "te").lower()
    if backend not in _BACKENDS:
        raise InvalidError(f"{PREFIX}BACKEND: expected te, msamp or ao, found {backend!r}; correct --fp8_backend")
    found = {"fp8.backend": _BACKENDS[backend]}
    if backend == "ao":  # Accelerate leaves the head out as well
        return {**found, "fp8.te.recipe": "current"}
    found["layers.skip"] = []
    if backend == "te":
        return {**found, **_te(settings)}
    return {**found, "fp8.msamp.opt_level": settings.get("OPT_LEVEL", "O2").upper()}


def settings_of(handler):
    """The variables that mean the same as one of Accelerate's recipe objects; None for another object."""
    kinds = {"TERecipeKwargs": "te", "MSAMPRecipeKwargs": "msamp", "AORecipeKwargs": "ao", "FP8RecipeKwargs": None}
    kind = type(handler).__name__
    if kind not in kinds:
        return None
    values = {name: value for name, value in vars(handler).items() if value is not None}
    if kind == "AORecipeKwargs" and (values.get("config") or values.get("module_filter_func")):
        raise UnsupportedError("AORecipeKwargs: expected no config and no module_filter_func, found objects of Python; "
                               "use octavo_config= with fp8.te.recipe and layers.skip")
    products = values.pop("override_linear_precision", None)
    found = {f"{PREFIX}{name.upper().removeprefix('FP8_')}": str(value) for name, value in values.items()}
    if products is not None:
        found.update({f"{PREFIX}OVERRIDE_{p.upper()}": str(on) for p, on in zip(_PRODUCTS, products)})
    return {**found, **({f"{PREFIX}BACKEND": kinds[kind]} if kinds[kind] else {})}


def settings(config=None, recipes=()):
    """config and overrides of octavo.prepare: the configuration if there is one, else the first recipe, given as
    settings_of returns it, else the launcher's variables, else the defaults."""
    if config is not None or not (recipes or any(name.startswith(PREFIX) for name in os.environ)):
        return {"config": config, "overrides": None}
    return {"config": None, "overrides": overrides(recipes[0] if recipes else os.environ)}
