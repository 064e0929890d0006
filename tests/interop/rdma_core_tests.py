#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Runs rdma-core's own test suite, as Debian ships it, on softmlx5's libraries.

usage: rdma_core_tests.py LIBDIR [MODULE ...]   run it, whole modules, one process each
       rdma_core_tests.py LIBDIR names          is each test of the suite in the list, and nothing else?
       rdma_core_tests.py table                 print docs/rdma-core-tests.md
       rdma_core_tests.py stale                 are that page, and README's figures, those of the list?

rdma_core_tests.list says what becomes of each test. Prints `ok - name`, `not ok - name` or
`skip - name # reason` for each. A test that is not in scope is "ok" when it skips: what is shown is
that nothing crashes, hangs or fails on the way there.
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
ROOT = HERE.parent.parent
PAGE = ROOT / 'docs' / 'rdma-core-tests.md'
SUITE = pathlib.Path('/usr/share/doc/rdma-core/tests')
MODULE_SECONDS = 240
NAME = re.compile(r'^\w+ \((tests\.)?\w+\.')
OUTCOME = re.compile(r'\.\.\. *(.*?)(ok|FAIL|ERROR|skipped .*)$')
RESULT = re.compile(r'^(\w+) \((?:tests\.)?(\w+)\.(\w+)(?:\.\w+)?\).*?\.\.\. *(?:.*?)(ok|FAIL|ERROR|skipped .*)$')
PAGE_HEAD = """# rdma-core's own tests

Every test of the suite that rdma-core 44 ships (Debian's `python3-pyverbs`), and what becomes of it on softmlx5. Made from
`tests/interop/rdma_core_tests.list` by `tests/interop/rdma_core_tests.py table`; `make check` runs every one of them, and fails when
this page, the list or the suite differ. What is not in scope is run too: it has to skip, and not to crash, hang or fail.

"""


def read_list():
    """-> {module: {'Class.test': (kind, reason)}}; kind is '' (must pass), 'skip' or 'absent'."""
    reasons, wanted = {}, {}
    for line in (HERE / 'rdma_core_tests.list').read_text().splitlines():
        words = line.split(None, 2)
        if not words or words[0] == '#':
            continue
        if words[0] == '=':
            reasons[words[1]] = words[2]
            continue
        module, _, test = words[0].partition('.')
        kind = words[1] if len(words) > 1 else ''
        if kind not in ('', 'skip', 'absent'):
            sys.exit(f'{words[0]}: "{kind}" is neither skip nor absent')
        wanted.setdefault(module, {})[test] = (kind, reasons[words[2]] if kind else '')
    return wanted


def counts(tests):
    kinds = [kind for kind, _ in tests]
    return len(kinds), kinds.count(''), kinds.count('skip'), kinds.count('absent')


def all_tests(wanted):
    return [what for tests in wanted.values() for what in tests.values()]


def page(wanted):
    text = [PAGE_HEAD, '| module | tests | pass | skip, as a ConnectX-7 would | not in scope |\n|---|---|---|---|---|\n']
    for module, tests in wanted.items():
        text.append('| %s | %d | %d | %d | %d |\n' % (module, *counts(tests.values())))
    text.append('| **all** | **%d** | **%d** | **%d** | **%d** |\n' % counts(all_tests(wanted)))
    says = {'': 'passes', 'skip': 'skips: ', 'absent': 'not in scope: '}
    for module, tests in wanted.items():
        text.append(f'\n## {module}\n\n| test | |\n|---|---|\n')
        text += [f'| {test} | {says[kind]}{reason} |\n' for test, (kind, reason) in tests.items()]
    return ''.join(text)


def stale(wanted):
    """README names the figures; the page is the list's."""
    total, passing, skipping, absent = counts(all_tests(wanted))
    figures = f'{total} tests: {passing} pass, {skipping} skip as a ConnectX-7 would, {absent} are not in scope'
    bad = [f'{PAGE.name} is not what the list says: rdma_core_tests.py table > docs/{PAGE.name}'] \
        if not PAGE.exists() or PAGE.read_text() != page(wanted) else []
    if figures not in (ROOT / 'README.md').read_text():
        bad.append(f'README.md does not say "{figures}"')
    return bad


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


def run_suite(suite, libdir, *arguments):
    """-> (stdout, stderr, exit code or 'time-out')"""
    # What the library says on stderr would stand between a test's name and its result.
    env = dict(os.environ, LD_LIBRARY_PATH=libdir, PYTHONDONTWRITEBYTECODE='1', SOFTMLX5_LOG='off',
               PYTHONWARNINGS='ignore')
    try:
        done = subprocess.run(['/usr/bin/python3', 'run_tests.py', *arguments], cwd=suite, env=env,
                              capture_output=True, text=True, timeout=MODULE_SECONDS)
        return done.stdout, done.stderr, done.returncode
    except subprocess.TimeoutExpired as late:
        return (late.stdout or b'').decode(), (late.stderr or b'').decode(), 'time-out'


def run_module(suite, libdir, module):
    _, text, code = run_suite(suite, libdir, '-v', module)
    results, last = {}, ''
    for line in text.splitlines():
        # unittest prints the first line of a docstring between a test's name and its result.
        if NAME.match(line):
            last = line
        elif last and OUTCOME.search(line):
            line = last + ' ' + line
        match = RESULT.match(line)
        if match:
            results[f'{match[3]}.{match[1]}'] = match[4]
            last = ''
    return results, text, code


def judge(name, kind, reason, got):
    """RETURN whether that is what the list says."""
    skipped = got.startswith('skipped')
    if kind == 'absent' and skipped:
        print(f'ok - {name}: not in scope ({reason}), and skips')
    elif kind == 'skip' and skipped:
        print(f'skip - {name} # {reason}: {got[8:]}')
    elif kind != 'absent' and got == 'ok':
        print(f'ok - {name}')
    else:
        passes = '; the list says it is not in scope' if kind == 'absent' and got == 'ok' else ''
        print(f'not ok - {name}: {got}{passes}')
        return False
    return True


def check_names(suite, libdir, wanted):
    out, text, code = run_suite(suite, libdir, '--list-tests')
    there = {line.removeprefix('tests.') for line in out.split() if line.startswith('tests.')}
    listed = {f'{module}.{test}' for module, tests in wanted.items() for test in tests}
    if not there:
        return [f'the suite lists no test (exit {code}): {text[-300:]}']
    return [f'{name} is not in rdma_core_tests.list' for name in sorted(there - listed)] + \
        [f'{name} is not in the suite' for name in sorted(listed - there)]


def report(what, bad):
    print('\n'.join(f'not ok - {what}: {line}' for line in bad) if bad else f'ok - {what}')
    return not bad


def main():
    wanted = read_list()
    if sys.argv[1:] == ['table']:
        print(page(wanted), end='')
        return
    if sys.argv[1:] == ['stale']:
        sys.exit(0 if report('rdma-core tests: page and README', stale(wanted)) else 1)
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    libdir = os.path.abspath(sys.argv[1])
    good = True
    with tempfile.TemporaryDirectory(prefix='softmlx5-suite-') as tmp:
        suite = unpack(pathlib.Path(tmp))
        if sys.argv[2:] == ['names']:
            sys.exit(0 if report('rdma-core tests: each is listed', check_names(suite, libdir, wanted)) else 1)
        for module in sys.argv[2:] or list(wanted):
            results, text, code = run_module(suite, libdir, module)
            bad = False
            for test, (kind, reason) in wanted[module].items():
                got = results.get(test, f'no result (exit {code})')
                bad |= not judge(f'rdma-core {module}.{test}', kind, reason, got)
            sys.stdout.flush()
            if bad:
                good = False
                print(text[-6000:], file=sys.stderr)
    sys.exit(0 if good else 1)


main()
