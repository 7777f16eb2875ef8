"""Reads options one by one into values of the right type, and refuses bad ones by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from serde_lab.errors import OptionError, did_you_mean


class OptionReader:
    """The options of one call. `known` maps each supported name to its meaning.

    Raises OptionError for a name that is not in `known` and does not begin with `free_prefix`, and for None.
    """

    def __init__(
        self, options: Mapping[str, Any], known: Mapping[str, str], free_prefix: str = ""
    ) -> None:
        for key in options:
            if key not in known and not (free_prefix and key.startswith(free_prefix)):
                raise OptionError(f"option {key!r} is not supported", did_you_mean(key, known))
            if options[key] is None:
                raise OptionError(f"{key} is None, expected a value; leave the option out")
        self.options = options

    def given(self, *keys: str) -> str | None:
        """The first of `keys` that is set; used for an option that has had several names."""
        return next((key for key in keys if key in self.options), None)

    def of_two_names(self, name: str, older: str, read: Callable[[str], object]) -> str:
        """The one of an option's two names that is set, else `name`; `read` must give the same for both."""
        if self.given(name) and self.given(older) and read(name) != read(older):
            raise OptionError(
                f"{older} is {self.text(older, '')!r}, but {name}, its newer name, is"
                f" {self.text(name, '')!r}"
            )
        return self.given(name, older) or name

    def text(self, key: str, default: str) -> str:
        return str(self.options.get(key, default)).strip()

    def exact(self, key: str) -> str:
        """The value with its surrounding blanks; "" if it is not set."""
        return str(self.options.get(key, ""))

    def pieces(self, key: str) -> tuple[str, ...]:
        """The value split at commas, blanks kept, as Java's `split` does: empty pieces at the end are
        dropped, and an empty text is one empty piece.
        """
        text = self.exact(key)
        return tuple(text.rstrip(",").split(",")) if text.strip(",") or not text else ()

    def names(self, key: str) -> tuple[str, ...]:
        """Column or class names, split at commas, without surrounding blanks."""
        return tuple(part.strip() for part in self.pieces(key) if part.strip())

    def number(self, key: str, default: int, least: int = 0) -> int:
        if key not in self.options:
            return default
        found = str(self.options[key]).strip()
        if not found.isdecimal() or int(found) < least:
            raise OptionError(f"{key} is {found!r}, expected an integer from {least}")
        return int(found)

    def any_number(self, key: str) -> int | None:
        """An integer, also below 0; None if it is not set."""
        if key not in self.options:
            return None
        found = str(self.options[key]).strip()
        if not found.removeprefix("-").isdecimal():
            raise OptionError(f"{key} is {found!r}, expected an integer")
        return int(found)

    def decimal(self, key: str, default: float) -> float:
        """A number that need not be whole."""
        try:
            return float(self.options.get(key, default))
        except (TypeError, ValueError) as exc:
            raise OptionError(f"{key} is {self.options[key]!r}, expected a number") from exc

    def flag(self, key: str) -> bool | None:
        """None if it is not set."""
        found = self.choice(key, ("true", "false"), lower=True)
        return None if found is None else found == "true"

    def choice(self, key: str, known: tuple[str, ...], lower: bool = False) -> str | None:
        """One of `known`, in any letter case; None if it is not set."""
        if key not in self.options:
            return None
        found = self.text(key, "")
        found = found.lower() if lower else found.upper()
        if found not in known:
            raise OptionError(f"{key} is {found!r}, expected {' or '.join(known)}")
        return found

    def only(self, key: str, known: tuple[str, ...]) -> None:
        """Check an option that callers may set, but only to a value of `known`."""
        self.choice(key, known, lower=known[0].islower())
