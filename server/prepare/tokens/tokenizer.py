"""A model directory's tokenizer, as transformers' AutoTokenizer has it:
tokenizer.json, and the tokens that only files beside it know."""

import hashlib
import os
import re

from common.files import MAX_TOKENIZER_BYTES, read_json_object, read_regular
from common.reporting import DataError

NAMED_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token",
                "pad_token", "cls_token", "mask_token")
LISTS_OF_TOKENS = ("additional_special_tokens", "extra_special_tokens")
TOKEN_FLAGS = ("lstrip", "rstrip", "normalized", "single_word", "special")
MOST_IDS = 1 << 31


def load_tokenizer(path):
    """The Tokenizer of this tokenizer.json's folder, and the file's SHA-256."""
    from tokenizers import Tokenizer

    data = read_regular(path, MAX_TOKENIZER_BYTES)
    if data is None:
        raise DataError("unreadable tokenizer: there is no such file", path)
    try:
        tokenizer = Tokenizer.from_buffer(data)
    except MemoryError:
        raise
    except Exception as error:  # tokenizers raises bare Exception
        raise DataError(f"unreadable tokenizer: {error}", path) from error
    # Settings of whoever saved the file; rows are cut and padded later.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    add_other_tokens(tokenizer, os.path.dirname(path))
    return tokenizer, hashlib.sha256(data).hexdigest()


# --- Tokens beside tokenizer.json --------------------------------------------


def add_other_tokens(tokenizer, folder):
    """Adds what tokenizer_config.json, or without its list special_tokens_map
    and added_tokens.json, know beyond tokenizer.json. The order is that of
    transformers. A token that would get another id than its file says is
    refused; so is, by find_eos, an end of sequences that nothing has an id
    for."""
    wanted, ids = listed_tokens(folder)
    known = {plain(token) for token in
             tokenizer.get_added_tokens_decoder().values()}
    fresh = [token for token in wanted if plain(token) not in known]
    named = {token.content for token in
             tokenizer.get_added_tokens_decoder().values()}
    fresh = [token for token in fresh
             if token.content in ids or token.content not in named]
    eos, _ = named_eos(folder)
    fresh = [token for token in fresh if token.content != eos or
             token.content in ids or tokenizer.token_to_id(eos) is not None]
    if not fresh:
        return
    tokenizer.add_tokens(fresh)
    for token in fresh:
        wished, path = ids.get(token.content, (None, None))
        found = tokenizer.token_to_id(token.content)
        if wished is not None and found != wished:
            raise DataError(
                f"says that the token {token.content!r} has the id {wished}, "
                f"with tokenizer.json beside it the id is {found}; save the "
                "tokenizer again, so that tokenizer.json has the token", path)


def plain(token):
    return (token.content, token.lstrip, token.rstrip, token.normalized,
            token.single_word, token.special)


def listed_tokens(folder):
    """The AddedTokens that files beside tokenizer.json name, in order, and
    {text: (id, file)} where a file says the id."""
    path = os.path.join(folder, "tokenizer_config.json")
    config = read_json_object(path) or {}
    found, ids = [], {}
    if "added_tokens_decoder" in config:
        items = tokens_with_ids(config["added_tokens_decoder"], path)
        sources = [(path, config)]
    else:
        sources = [(path, config)]
        map_path = os.path.join(folder, "special_tokens_map.json")
        sources.append((map_path, read_json_object(map_path) or {}))
        special = {token.content for place, values in sources
                   for token in special_tokens_of(values, place)}
        path = os.path.join(folder, "added_tokens.json")
        items = legacy_tokens(read_json_object(path) or {}, special, path)
    for number, token in sorted(items, key=lambda item: item[0]):
        found.append(token)
        ids[token.content] = (number, path)
    seen = set(ids)
    roles = {}  # the first file that names one is right
    for place, values in sources:
        values = {name: value for name, value in values.items()
                  if name not in NAMED_TOKENS or
                  roles.setdefault(name, place) == place}
        for token in special_tokens_of(values, place):
            if token.content not in seen:
                seen.add(token.content)
                found.append(token)
    return found, ids


def tokens_with_ids(value, path):
    if not isinstance(value, dict):
        raise DataError("added_tokens_decoder must be an object", path)
    for number, token in value.items():
        if not re.fullmatch("[0-9]{1,9}", number):
            raise DataError(f"added_tokens_decoder: {number!r} is no id", path)
        yield int(number), added_token(token, path, False)


def legacy_tokens(value, special, path):
    """What added_tokens.json has: {text: id}."""
    from tokenizers import AddedToken

    for text, number in value.items():
        if type(number) is not int or not 0 <= number < MOST_IDS or not text:
            raise DataError(f"the token {text!r} has no id", path)
        yield number, AddedToken(text, normalized=text not in special,
                                 special=text in special)


def special_tokens_of(config, path):
    """What a file names as special, by role or in a list."""
    values = [config[name] for name in NAMED_TOKENS
              if config.get(name) is not None]
    for name in LISTS_OF_TOKENS:
        listed = config.get(name)
        # As a dictionary it is names of roles, whose tokens are the values.
        listed = list(listed.values()) if isinstance(listed, dict) else listed
        if listed is not None and not isinstance(listed, list):
            raise DataError(f"{name} must be a list", path)
        values += listed or []
    return [added_token(value, path, True) for value in values]


def added_token(value, path, special):
    from tokenizers import AddedToken

    if isinstance(value, str) and value:
        return AddedToken(value, special=special)
    content = value.get("content") if isinstance(value, dict) else None
    if not isinstance(content, str) or not content:
        raise DataError(f"has a token without text: {str(value)[:80]}", path)
    flags = {name: value[name] for name in TOKEN_FLAGS
             if isinstance(value.get(name), bool)}
    if special:
        flags["special"] = True
    return AddedToken(content, **flags)


# --- What it is like ---------------------------------------------------------


def without_post_processor(tokenizer):
    """The same without what adds special tokens (a template has its own) and
    cuts spaces off the tokens' offsets."""
    other = type(tokenizer).from_str(tokenizer.to_str())
    other.post_processor = None
    return other


def special_ids(tokenizer):
    return {number for number, token in
            tokenizer.get_added_tokens_decoder().items() if token.special}


def special_pattern(tokenizer):
    """Matches any of the tokenizer's special tokens in a text."""
    tokens = [re.escape(token.content) for token in
              tokenizer.get_added_tokens_decoder().values()
              if token.special and token.content]
    return re.compile("|".join(sorted(tokens, key=len, reverse=True))
                      or r"(?!)")


def named_eos(folder):
    """What the first file that names it has as end-of-sequence token, and the
    file."""
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        path = os.path.join(folder, name)
        token = (read_json_object(path) or {}).get("eos_token")
        if isinstance(token, dict):
            token = token.get("content")
        if token is not None:
            return str(token), path
    return None, None


def find_eos(folder, tokenizer):
    """The id of the end-of-sequence token, from the first file that has it."""
    token, path = named_eos(folder)
    if token is not None:
        found = tokenizer.token_to_id(token)
        if found is None:
            raise DataError(
                f"eos_token {token!r} is not in the tokenizer", path)
        return found
    vocab_size = tokenizer.get_vocab_size(with_added_tokens=True)
    for name in ("generation_config.json", "config.json"):
        path = os.path.join(folder, name)
        found = (read_json_object(path) or {}).get("eos_token_id")
        if isinstance(found, list):
            found = found[0] if found else None
        if found is None:
            continue
        if type(found) is not int or not 0 <= found < vocab_size:
            raise DataError(
                f"eos_token_id {found!r} is not in the tokenizer", path)
        return found
    raise DataError(
        "the tokenizer has no end-of-sequence token: neither eos_token in "
        "tokenizer_config.json or special_tokens_map.json nor "
        "eos_token_id in generation_config.json or config.json", folder)


def listed_ends(folder, name):
    """The ids of the tokens that this file says end a sequence."""
    config = read_json_object(os.path.join(folder, name)) or {}
    ids = config.get("eos_token_id")
    return {number for number in (ids if isinstance(ids, list) else [ids])
            if type(number) is int and number >= 0}


def model_rows(folder):
    """Rows of the model's embedding by its config.json, None without one: a
    token beyond them has none."""
    config = read_json_object(os.path.join(folder, "config.json")) or {}
    inner = config.get("text_config")
    for place in (config, inner if isinstance(inner, dict) else {}):
        rows = place.get("vocab_size")
        if type(rows) is int and rows > 0:
            return rows
    return None
