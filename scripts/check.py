#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Builds and runs the tests; the last line counts them: N passed, N failed[, N skipped].

usage: check.py quick | full | sanitizers | suite | fuzz | soak

A test program prints `ok - name`, `not ok - name` or `skip - name # reason` a line (cmocka's TAP output
counts too) and exits 0, or 77 when all of it is skipped. One that dies counts as a failure.
"""
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / 'build'
JOBS = os.cpu_count() or 2
LINE = re.compile(r'^(ok|not ok|skip)(?: \d+)?(?: -)? (.*)$')
COUNT = re.compile(r'^(\d+) passed, (\d+) failed$')	# wqe_vectors
PROGRAM_SECONDS = 300
ORACLE_SECONDS = 1200
SOAK_SECONDS = int(os.environ.get('SOAK_SECONDS', '120'))
FUZZ_SECONDS = int(os.environ.get('FUZZ_SECONDS', '60'))


class Tally:
    def __init__(self):
        self.passed, self.failed, self.skipped = 0, [], []

    def take(self, label, text, code):
        """Reads a program's result lines. A bad exit without a failed line is a failure of its own."""
        seen = failed = 0
        for line in text.splitlines():
            count = COUNT.match(line)
            if count:
                seen += 1
                self.passed += int(count[1])
                failed += int(count[2])
                self.failed += [f'{label}: {count[0]}'] if failed else []
            match = LINE.match(line)
            if not match:
                continue
            seen += 1
            kind, name = match[1], match[2]
            if '# SKIP' in name or kind == 'skip':
                self.skipped.append(f'{label}: {name}')
            elif kind == 'ok':
                self.passed += 1
            else:
                failed += 1
                self.failed.append(f'{label}: {name}')
        if code == 77 and not seen:
            self.skipped.append(f'{label}: {text.strip() or "not possible here"}')
        elif code not in (0, 77) and not failed:
            self.failed.append(f'{label}: exit {code}')
        elif code == 0 and not seen:
            self.passed += 1
        return failed or code not in (0, 77)


TALLY = Tally()
SANITIZER_ENV = {
    'ASAN_OPTIONS': 'detect_leaks=1:handle_segv=1:allow_user_segv_handler=1:abort_on_error=0',
    'LSAN_OPTIONS': f'suppressions={ROOT}/scripts/lsan.supp:print_suppressions=0',
    'UBSAN_OPTIONS': 'print_stacktrace=1',
    'TSAN_OPTIONS': f'suppressions={ROOT}/scripts/tsan.supp:halt_on_error=0:exitcode=66:atexit_sleep_ms=50',
}


def run(label, command, seconds=PROGRAM_SECONDS, **env):
    full = dict(os.environ, CMOCKA_MESSAGE_OUTPUT='TAP', **SANITIZER_ENV, **env)
    began = time.monotonic()
    try:
        done = subprocess.run(command, cwd=ROOT, env=full, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors='replace', timeout=seconds)
        return label, done.stdout, done.returncode, time.monotonic() - began
    except subprocess.TimeoutExpired as late:
        text = (late.stdout or b'').decode(errors='replace')
        return label, text, f'time-out after {seconds} s', time.monotonic() - began


def report(result):
    label, text, code, seconds = result
    bad = TALLY.take(label, text, code)
    print(f'{"FAIL" if bad else "ok  "} {label}  {seconds:.1f} s', flush=True)
    if bad:
        print('\n'.join('     ' + line for line in text.splitlines()[-60:]), flush=True)


def run_all(programs):
    """programs: [(label, command, env)]; as many at once as there are processors."""
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        for result in pool.map(lambda p: run(p[0], p[1], **p[2]), programs):
            report(result)


def build(name, compiler, *options, targets=()):
    """A build that fails ends the check: nothing after it would mean anything."""
    folder = BUILD / name
    shutil.which(compiler) or sys.exit(f'check: {compiler} is not installed; run `make deps`')
    began = time.monotonic()
    for command in (['cmake', '-G', 'Ninja', '-S', str(ROOT), '-B', str(folder), f'-DCMAKE_C_COMPILER={compiler}',
                     *options], ['ninja', '-C', str(folder), *targets]):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            print(done.stdout[-8000:])
            print(f'not ok - build {name} ({compiler})')
            finish(extra_failure=f'build {name}')
    TALLY.passed += 1
    print(f'ok   build {name} ({compiler}, no warnings)  {time.monotonic() - began:.1f} s', flush=True)
    return folder


def programs_in(folder, *kinds):
    for kind in kinds:
        for path in sorted((folder / 'tests' / kind).glob('*')):
            if path.is_file() and os.access(path, os.X_OK):
                yield (f'{folder.name}/{kind}/{path.name}', [str(path)], {})


def shell_tests(folder):
    for path in sorted((ROOT / 'tests' / 'interop').glob('*_test.sh')):
        yield (f'{folder.name}/interop/{path.stem}', ['bash', str(path), str(folder)], {})


def examples(folder):
    for path in sorted((folder / 'examples').glob('*')):
        if path.is_file() and os.access(path, os.X_OK):
            yield (f'{folder.name}/examples/{path.name}', [str(path)], {})


def oracle(folder, requests):
    """Queue entries against those of the installed libmlx5, for random programs."""
    path = folder / 'tests/oracle/oracle'
    if path.exists():
        report(run(f'{folder.name}/oracle', [str(path), str(requests)], seconds=ORACLE_SECONDS))
    else:
        TALLY.skipped.append(f'{folder.name}/oracle: rdma-core\'s libraries are not installed')


def tree():
    report(run('tree', [sys.executable, 'scripts/check_layers.py']))
    report(run('rdma-core tests', [sys.executable, 'tests/interop/rdma_core_tests.py', 'stale']))


def quick(requests=20000):
    tree()
    folder = build('gcc', 'gcc')
    oracle(folder, requests)
    run_all([*programs_in(folder, 'unit', 'vectors', 'abi', 'api', 'regress'), *shell_tests(folder), *examples(folder)])


def suite():
    folder = build('gcc', 'gcc')
    modules = sorted({line.split('.')[0] for line in
                      (ROOT / 'tests/interop/rdma_core_tests.list').read_text().splitlines()
                      if line.startswith('test_')})
    script = str(ROOT / 'tests/interop/rdma_core_tests.py')
    run_all([(f'rdma-core {m}', ['/usr/bin/python3', script, str(folder / 'lib'), m], {})
             for m in ('names', *modules)])


def sanitizers():
    asan = build('asan', 'gcc', '-DSMX_SANITIZE=address,undefined')
    run_all([*programs_in(asan, 'unit', 'vectors', 'api', 'regress'), *examples(asan)])
    tsan = build('tsan', 'clang', '-DSMX_SANITIZE=thread')
    run_all([*programs_in(tsan, 'unit', 'api', 'regress')])


def fuzz():
    names = sorted(path.stem for path in (ROOT / 'tests' / 'fuzz').glob('*_fuzz.c'))
    folder = build('fuzz', 'clang', '-DSMX_FUZZ=ON', '-DSMX_SANITIZE=address,undefined', targets=names)
    found = BUILD / 'fuzz-found'
    jobs = []
    for target in names:
        name = target.removesuffix('_fuzz')
        corpus, seeds = found / name, ROOT / 'tests' / 'fuzz' / 'corpus' / name
        corpus.mkdir(parents=True, exist_ok=True)
        options = [f'-max_total_time={FUZZ_SECONDS}', '-timeout=10', '-rss_limit_mb=2048', '-verbosity=0',
                   f'-artifact_prefix={corpus}/']
        jobs.append((f'fuzz/{name}', [str(folder / 'tests/fuzz' / target), *options, str(corpus), str(seeds)], {}))
    run_all(jobs)


def soak():
    folder = build('gcc', 'gcc')
    program = str(folder / 'bench/soak')
    report(run('gcc/bench/soak', [program, '--seconds', str(SOAK_SECONDS)], SOAK_SECONDS + 200))


def finish(extra_failure=None):
    if extra_failure:
        TALLY.failed.append(extra_failure)
    if TALLY.skipped:
        print('\nskipped:')
        print('\n'.join(f'  {line}' for line in TALLY.skipped))
    if TALLY.failed:
        print('\nfailed:')
        print('\n'.join(f'  {line}' for line in TALLY.failed))
    tail = f', {len(TALLY.skipped)} skipped' if TALLY.skipped else ''
    print(f'{TALLY.passed} passed, {len(TALLY.failed)} failed{tail}', flush=True)
    sys.exit(1 if TALLY.failed else 0)


def full():
    quick(requests=200000)
    suite()
    soak()
    build('clang', 'clang')
    sanitizers()
    fuzz()


def main():
    wanted = sys.argv[1] if len(sys.argv) == 2 else ''
    steps = {'quick': quick, 'full': full, 'sanitizers': sanitizers, 'suite': suite, 'fuzz': fuzz, 'soak': soak}
    if wanted not in steps:
        sys.exit(__doc__)
    steps[wanted]()
    finish()


main()
