#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Runs rdma-core's own test suite, as Debian ships it, on softmlx5's libraries.

usage: rdma_core_tests.py LIBDIR [MODULE ...]

The tests named in rdma_core_tests.list must pass, one process a module; those marked "skip" may skip.
Prints `ok - name`, `not ok - name` or `skip - name # reason` for each. Tests of the suite that the
list does not name are not run.
"""
import gzip
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SUITE = pathlib.Path('/usr/share/doc/rdma-core/tests')
MODULE_SECONDS = 240
RESULT = re.compile(r'^(\w+) \((?:tests\.)?(\w+)\.(\w+)(?:\.\w+)?\).*?\.\.\. *(?:.*?)(ok|FAIL|ERROR|skipped .*)$')


def read_list():
    """-> {module: {'Class.test': reason it may skip, or ''}}"""
    wanted = {}
    for line in (HERE / 'rdma_core_tests.list').read_text().splitlines():
        if not line.strip() or line.startswith('#'):
            continue
        name, _, rest = line.partition(' ')
        module, _, test = name.partition('.')
        wanted.setdefault(module, {})[test] = rest.strip()
    return wanted


def unpack(into):
    """Copies the suite; where the system drops documentation, takes it from the package itself."""
    source = SUITE
    if not (source / 'run_tests.py').exists():
        subprocess.run(['apt-get', 'download', 'python3-pyverbs'], cwd=into, check=True, stdout=sys.stderr)
        deb = next(into.glob('python3-pyverbs_*.deb'))
        subprocess.run(['dpkg-deb', '-x', str(deb), str(into / 'deb')], check=True)
        source = into / 'deb' / SUITE.relative_to('/')
    suite = into / 'suite'
    shutil.copytree(source, suite)
    for packed in suite.glob('*.gz'):
        packed.with_suffix('').write_bytes(gzip.decompress(packed.read_bytes()))
        packed.unlink()
    return suite


def run_module(suite, libdir, module, tests):
    # What the library says on stderr would stand between a test's name and its result.
    env = dict(os.environ, LD_LIBRARY_PATH=libdir, PYTHONDONTWRITEBYTECODE='1', SOFTMLX5_LOG='off',
               PYTHONWARNINGS='ignore')
    names = [f'{module}.{test}' for test in tests]
    command = ['/usr/bin/python3', 'run_tests.py', '-v'] + names
    try:
        done = subprocess.run(command, cwd=suite, env=env, capture_output=True, text=True,
                              timeout=MODULE_SECONDS)
        text, code = done.stderr, done.returncode
    except subprocess.TimeoutExpired as late:
        text, code = (late.stderr or b'').decode(), 'time-out'
    results, last = {}, ''
    for line in text.splitlines():
        # unittest prints the first line of a docstring between a test's name and its result.
        if re.match(r'^\w+ \((tests\.)?\w+\.', line):
            last = line
        elif last and re.search(r'\.\.\. *(.*?)(ok|FAIL|ERROR|skipped .*)$', line):
            line = last + ' ' + line
        match = RESULT.match(line)
        if match:
            results[f'{match[3]}.{match[1]}'] = match[4]
            last = ''
    return results, text, code


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    libdir = os.path.abspath(sys.argv[1])
    wanted = read_list()
    modules = sys.argv[2:] or list(wanted)
    failed = False
    with tempfile.TemporaryDirectory(prefix='softmlx5-suite-') as tmp:
        suite = unpack(pathlib.Path(tmp))
        for module in modules:
            results, text, code = run_module(suite, libdir, module, wanted[module])
            bad = []
            for test, may_skip in wanted[module].items():
                name, got = f'rdma-core {module}.{test}', results.get(test, f'no result (exit {code})')
                if got == 'ok':
                    print(f'ok - {name}')
                elif got.startswith('skipped') and may_skip:
                    print(f'skip - {name} # {may_skip[5:] if may_skip.startswith("skip ") else may_skip}: {got[8:]}')
                else:
                    print(f'not ok - {name}: {got}')
                    bad.append(test)
            sys.stdout.flush()
            if bad:
                failed = True
                print(text[-6000:], file=sys.stderr)
    sys.exit(1 if failed else 0)


main()
