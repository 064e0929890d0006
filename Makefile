# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# make demo    build, then run the examples on the built-in device
# make check   build with gcc and clang, all tests, sanitizers, rdma-core's own suite, fuzzers
BUILD  := build/gcc
PREFIX ?= /usr/local

.PHONY: all deps build demo check check-quick bench install clean
all: build

deps:
	@scripts/deps.sh

build: deps
	@cmake -G Ninja -S . -B $(BUILD) -DCMAKE_C_COMPILER=gcc -DCMAKE_INSTALL_PREFIX=$(PREFIX) >/dev/null
	@ninja -C $(BUILD) --quiet

demo: build
	@scripts/demo.sh $(BUILD)

check: deps
	@scripts/check.py full

check-quick: deps
	@scripts/check.py quick

bench: build
	@bench/run.py $(BUILD)

install: build
	@cmake --install $(BUILD) --prefix $(DESTDIR)$(PREFIX)

clean:
	rm -rf build
