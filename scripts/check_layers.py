#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Checks the layer rules of docs/design.md and the tree's habits; prints one result line a rule.

An arrow that the table does not allow, a file name that stands twice, a missing SPDX line, a typedef of
a struct, a file or function over its limit: each is named with file and line.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LAYERS = {
    'base': {'base'},
    'hw': {'base', 'hw'},
    'wire': {'base', 'wire'},
    'trace': {'base', 'trace'},
    'net': {'base', 'trace', 'net'},
    'obj': {'base', 'hw', 'trace', 'obj'},
    'xport': {'base', 'hw', 'wire', 'net', 'trace', 'obj', 'xport'},
    'dev': {'base', 'hw', 'wire', 'net', 'trace', 'obj', 'xport', 'dev'},
    'dv': {'base', 'hw', 'trace', 'dv'},
    'verbs': {'base', 'hw', 'trace', 'dv', 'verbs'},
    'files': {'files'},
    'tools': {'base', 'hw', 'wire', 'trace', 'tools'},
}
EXTRA = {'verbs': {'dev/dev.h'}}           # the device's face
PURE = ('obj', 'xport', 'dev')             # no threads, clock or random source (design D3)
PURE_BANNED = re.compile(r'\b(pthread_\w+|clock_gettime|gettimeofday|rand|random|usleep|nanosleep|getenv)\s*\(')
PUBLIC_ONLY = ('examples', 'tests/api')
RESULT_BANNED = re.compile(r'\b(strcpy|strcat|sprintf|vsprintf|gets|atoi|atol)\s*\(')
MAX_FILE_LINES = 900
MAX_FUNCTION_LINES = 80
MAX_COLUMNS = 120


def sources(*folders):
    for folder in folders:
        for path in sorted((ROOT / folder).rglob('*')):
            if path.suffix in ('.c', '.h', '.def') and path.is_file():
                yield path


def rel(path):
    return path.relative_to(ROOT).as_posix()


def check_arrows():
    for layer, may in LAYERS.items():
        folder = 'tools' if layer == 'tools' else f'src/{layer}'
        for path in sources(folder):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
                if not match or match[1] == 'softmlx5.h':
                    continue
                head = match[1]
                target = head.split('/')[0] if '/' in head else layer
                if target not in may and head not in EXTRA.get(layer, ()):
                    yield f'{rel(path)}:{number}: {layer} may not include "{head}"'


def check_public_only():
    for path in sources(*PUBLIC_ONLY):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
            if match and '/' in match[1]:
                yield f'{rel(path)}:{number}: only public headers here, not "{match[1]}"'


def check_pure():
    for path in sources(*(f'src/{layer}' for layer in PURE)):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if PURE_BANNED.search(line):
                yield f'{rel(path)}:{number}: the device core is a pure machine: {line.strip()}'


def check_names():
    seen = {}
    for path in sources('src', 'tools', 'sim', 'include'):
        if path.name in seen:
            yield f'{rel(path)}: same name as {seen[path.name]}'
        seen[path.name] = rel(path)


def check_text():
    for path in sources('src', 'tools', 'sim', 'include', 'tests', 'bench', 'examples'):
        text = path.read_text()
        lines = text.splitlines()
        if 'SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause' not in (lines[0] if lines else ''):
            yield f'{rel(path)}:1: no SPDX line'
        if len(lines) > MAX_FILE_LINES and path.suffix != '.def':
            yield f'{rel(path)}: {len(lines)} lines, {MAX_FILE_LINES} allowed'
        for number, line in enumerate(lines, 1):
            if path.suffix != '.def' and len(line.expandtabs(8)) > MAX_COLUMNS:
                yield f'{rel(path)}:{number}: {len(line.expandtabs(8))} columns, {MAX_COLUMNS} allowed'
            if RESULT_BANNED.search(line):
                yield f'{rel(path)}:{number}: unbounded or unchecked: {line.strip()}'
            if re.match(r'typedef struct(?! \{ uint8_t b\[)', line):
                yield f'{rel(path)}:{number}: no typedef of a struct'


def check_functions():
    for path in sources('src', 'tools'):
        if path.suffix != '.c':
            continue
        start, name = None, ''
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if line.startswith('{'):
                start = number
            elif line.startswith('}') and start:
                if number - start > MAX_FUNCTION_LINES and name != 'table':
                    yield f'{rel(path)}:{start}: function of {number - start} lines, {MAX_FUNCTION_LINES} allowed'
                start = None


RULES = [('layers: includes follow the table', check_arrows),
         ('layers: examples and tests/api use public headers only', check_public_only),
         ('layers: obj, xport and dev are a pure machine', check_pure),
         ('tree: file names are unique', check_names),
         ('tree: SPDX lines, lengths, no unbounded string calls', check_text),
         ('tree: functions are short', check_functions)]


def main():
    bad = False
    for name, rule in RULES:
        found = list(rule())
        bad = bad or bool(found)
        print(f'not ok - {name}' if found else f'ok - {name}')
        for line in found:
            print(f'    {line}')
    sys.exit(1 if bad else 0)


main()
