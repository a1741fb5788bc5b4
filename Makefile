# One command for each thing a person does here.
#
#   make demo     a local cluster, real data through Spark, a bookie killed, everything read back
#   make check    linters, types, unit tests and scenarios: what one runs before a push (2 minutes on two cores)
#   make test     make check, then clusters, Spark and a short simulation: what CI runs (20 minutes on two cores)
#   make soak     all the rest, nightly: tests/soak, and every long command below with its default budget (hours)
#
#   make lint     linters and types alone
#   make format   rewrites the code as the linters want it
#   make simulate the protocol under faults in virtual time, on all cores, also with whole client programs, and duels for a log
#                 (SEEDS=20000; WHOLE=2000; DUELS=5000; FIRST=the first seed; COVERAGE=1)
#   make mutants  the deliberate bugs, and after how many runs each engine catches them; then how many of MUTANTS=200 bugs made from
#                 the source each engine kills (SEED=1)
#   make chaos    the protocol under faults of real processes (ROUNDS=200; FIRST=the first seed; KEEP=directory for all records;
#                 MIXED=1: half of the bookies are Apache's; JAVA=1: Apache's Java client plays some of the roles)
#   make partitions   the protocol over a network that is cut, slow and lossy, with disks that fail and clocks that jump; needs
#                 root (ROUNDS=200; FIRST=the first seed; KEEP=directory for all records; BUG="name": with a deliberate bug;
#                 APACHE=2: of the five bookies are Apache's)
#   make farm     all engines above on new seeds for MINUTES=60, more of it where new states are found; one page of what came of it is
#                 in FARM=farm (page.md), beside its corpus, which the next one begins with, and its failures, made small
#   make directories  directories of embedded: and of local clusters are copied, moved, removed and restored while processes use
#                 them (MINUTES=60; SEED=1; BUG="name": with a deliberate bug)
#   make lost-bookie  a bookie is killed for good, and every copy comes back (LEDGERS=10000)
#   make duel     two processes that take one log from each other, suspended and killed (SECONDS=60; SEED=1)
#   make streams  a real stream, exactly once while its processes are killed (KILLS=50; SEED=1; KEEP=directory for all logs;
#                 APACHE=1: on Apache's bookies)
#   make tiers    a log whose history moves into a table while tierers are killed, half of them beside Spark; then one of ten
#                 times the size of its bookies' disks, as root (KILLS=50; SEED=1)
#   make transactions  writers of transactions over three logs are killed, and the driver of a stream into 20 logs (KILLS=50; SEED=1)
#   make gateway  two gateways are killed beneath callers who repeat at the other one; then hostile callers for a sixth of
#                 MINUTES=60 (KILLS=50; SEED=1)
#   make callers  callers of two gateways beside lists of rows, in memory; then the deliberate bugs of it (HISTORIES=2000; SEED=1)
#   make fuzz     spoilt messages and files against everything that reads them (FUZZ_SECONDS=600; SEED=1; TARGET=…)
#   make commands every command with random arguments and files, twice at once, and killed on the way (MINUTES=60; SEED=1;
#                 BUG="name": with a deliberate bug; BUGS=1: after how many cases each of them is found)
#   make arrow    drawn Arrow data into logs and out of them: half of the time in memory, half by clients, commands and Spark on a
#                 real cluster, with a tier and without; then the deliberate bugs of it (MINUTES=60; SEED=1)
#   make latest   reads of the newest row of each key beside a dictionary, in memory (HISTORIES=2000; SEED=1)
#   make several  transactions and writes with logColumn beside lists of rows, in memory (HISTORIES=2000; SEED=1)
#   make interrupts  an interrupt at every step of the public calls, cancelled coroutines and forks, in memory (MINUTES=60; SEED=1;
#                 BUG="name": how many cases find that bug; BUGS=1: each of them)
#   make interop  our client and Apache's, on Apache's bookies and on ours: every combination; stock Spark on a log's table; clients
#                 of the gateway in Java and Go
#   make apache-tests  Apache's own compiled tests on our bookies (CLASS=part of a name; ARGS=--list, and more)
#   make pulsar   a Pulsar broker on our bookies, with kills (MESSAGES=1000000; MINUTES=60; SEED=1; KEEP=directory for all records)
#   make topics   topics of a Pulsar broker, read by us and by Pulsar's own client (MESSAGES=1000000; READS=1000;
#                 KILLS=3: of the broker, meanwhile; KEEP=directory)
#   make bench    every benchmark but those beside peers (SMALL=1: each as small as it goes; an hour otherwise)
#   make bench-peers  beside Kafka and Apache BookKeeper, which Maven fetches (SMALL=1)
#   make scale    a simulated cluster of up to 1,000 bookies and 10 million ledgers: recoveries, restarts, churn; into docs/scale.md (SEED=1;
#                 SMALL=1: small clusters, into build/scale.md)
#   make bench-page   docs/benchmarks.md, from what the two wrote into build/benchmarks
#   make proto    the generated code in bk_spark/proto, after a change of a .proto file
#   make clean    removes what the others made
#
# All but `clean` make .venv when it is missing. PYTHON names another interpreter than python3; JOBS=3 test files run at a time, because
# tests with real processes wait for two fifths of their time; PYTEST_ARGS go to pytest.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
SOURCES := $(shell find bk_spark -name '*.py') pyspark_bookkeeper.py bk_spark_command.py setup.cfg pyproject.toml

export PYSPARK_PYTHON := $(abspath $(RUN))

# Where the environment forbids to keep compiled modules, each of a thousand processes would compile all that it imports.
export PYTHONDONTWRITEBYTECODE :=

JOBS ?= 3
PYTEST := $(RUN) -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder
ARCHIVE := -XX:SharedArchiveFile=$(abspath $(VENV))
QUICK_JVM := JDK_JAVA_OPTIONS="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC $(ARCHIVE)/zookeeper.jsa -Xlog:disable" \
  SPARK_SUBMIT_OPTS="$(ARCHIVE)/spark.jsa"
SEEDS ?= 20000
WHOLE ?= 2000
DUELS ?= 5000
FIRST ?= 0
ROUNDS ?= 200
KILLS ?= 50
LEDGERS ?= 10000
SECONDS ?= 60
MUTANTS ?= 200
FUZZ_SECONDS ?= 600
MESSAGES ?= 1000000
MINUTES ?= 60
READS ?= 1000
HISTORIES ?= 2000
FARM ?= farm
SEED ?= 1

.PHONY: demo check test soak lint compiled format simulate mutants chaos partitions directories farm lost-bookie duel streams tiers transactions gateway fuzz commands arrow latest several callers interrupts interop apache-tests pulsar topics bench bench-peers scale bench-page proto clean check-java

demo: $(VENV)/installed check-java
	$(RUN) examples/demo.py

check: $(VENV)/test-installed
	$(MAKE) --jobs=2 --output-sync=target lint compiled
	$(PYTEST) tests/unit tests/scenarios $(PYTEST_ARGS)

# Most of a test with servers or Spark are processes that start: a JVM compiles quickly, not well, and maps its classes from an
# archive, which spark.jsa stands for, and Spark's Python processes find pyspark compiled.
test: check-java $(VENV)/test-installed
	$(MAKE) --jobs=2 --output-sync=target lint compiled $(VENV)/spark.jsa $(VENV)/byte-code
	$(QUICK_JVM) $(PYTEST) $(PYTEST_ARGS)

soak: lint check-java $(VENV)/spark.jsa $(VENV)/byte-code
	BK_SPARK_SOAK=1 $(PYTEST) tests/unit tests/simulation --timeout 3600
	BK_SPARK_SOAK=1 $(QUICK_JVM) $(PYTEST) tests/cluster tests/spark tests/interop -m nightly
	$(QUICK_JVM) $(PYTEST) tests/soak --timeout 3600
	BK_SPARK_SOAK=1 $(QUICK_JVM) $(PYTEST) tests/spark/test_where.py
	$(MAKE) simulate chaos directories lost-bookie duel streams tiers transactions gateway fuzz commands arrow latest several callers mutants farm
	$(MAKE) interrupts MINUTES=10

# Each worker of pytest would compile all tests anew: they begin together. What is wrong with the tests, their run tells.
compiled: $(VENV)/test-installed
	@$(RUN) -m pytest --collect-only --quiet > /dev/null 2>&1 || true

lint: $(VENV)/test-installed
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

format: $(VENV)/test-installed
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .

simulate: $(VENV)/test-installed
	$(RUN) -m tests.simulation run --seeds $(SEEDS) --first $(FIRST) $(if $(COVERAGE),--coverage)
	$(RUN) -m tests.simulation run --whole --seeds $(WHOLE) --first $(FIRST) $(if $(COVERAGE),--coverage)
	$(RUN) -m tests.simulation run-logs --seeds $(DUELS) --first $(FIRST)
	$(RUN) -m tests.simulation run-logs --seeds $(DUELS) --first $(FIRST) --tiers
	$(RUN) -m tests.simulation run-logs --seeds $(DUELS) --first $(FIRST) --transactions

mutants: $(VENV)/test-installed
	$(RUN) -m tests.simulation mutants
	$(RUN) -m tests.simulation log-mutants
	$(RUN) -m tests.simulation generated-mutants --count $(MUTANTS) --seed $(SEED)

chaos: $(VENV)/test-installed check-java
	$(RUN) -m tests.soak.chaos --rounds $(ROUNDS) --first $(FIRST) $(if $(MIXED),--mixed) $(if $(JAVA),--java) $(if $(KEEP),--keep $(KEEP))

partitions: $(VENV)/test-installed check-java
	$(RUN) -m tests.soak.partitions --rounds $(ROUNDS) --first $(FIRST) $(if $(KEEP),--keep $(KEEP)) $(if $(BUG),--bug "$(BUG)") $(if $(APACHE),--apache $(APACHE))

farm: $(VENV)/test-installed check-java
	$(RUN) -m tests.soak.farm --minutes $(MINUTES) --directory $(FARM)

directories: $(VENV)/test-installed check-java
	$(RUN) -m tests.soak.directories --minutes $(MINUTES) --seed $(SEED) $(if $(BUG),--bug "$(BUG)")

lost-bookie: $(VENV)/test-installed check-java
	$(RUN) -m tests.soak.chaos.lost_bookie --ledgers $(LEDGERS)

duel: $(VENV)/test-installed
	$(RUN) -m tests.soak.chaos.duel --seconds $(SECONDS) --seed $(SEED)

streams: $(VENV)/test-installed check-java
	$(RUN) -m tests.soak.streams --kills $(KILLS) --seed $(SEED) $(if $(APACHE),--apache) $(if $(KEEP),--keep $(KEEP))

tiers: $(VENV)/test-installed check-java
	$(RUN) -m tests.soak.tiers --kills $$(($(KILLS) - $(KILLS) / 2)) --seed $(SEED)
	$(RUN) -m tests.soak.tiers --kills $$(($(KILLS) / 2)) --seed $(SEED) --stream
	$(RUN) -m tests.soak.tiers.outgrown

transactions: $(VENV)/test-installed check-java
	$(RUN) -m tests.soak.transactions --kills $(KILLS) --seed $(SEED)
	$(RUN) -m tests.soak.transactions.stream --kills 30 --seed $(SEED)

gateway: $(VENV)/test-installed check-java
	$(RUN) -m tests.soak.gateway --kills $(KILLS) --seed $(SEED)
	$(RUN) -m tests.soak.gateway.hostile --minutes $$(($(MINUTES) / 6)) --seed $(SEED)

callers: $(VENV)/test-installed
	$(RUN) -m tests.soak.callers --histories $(HISTORIES) --seed $(SEED)
	$(RUN) -m tests.soak.callers --bugs

fuzz: $(VENV)/test-installed
	$(RUN) -m tests.soak.fuzz --seconds $(FUZZ_SECONDS) --seed $(SEED) $(if $(TARGET),--target $(TARGET))

commands: $(VENV)/test-installed check-java
	$(RUN) -m tests.soak.commands $(if $(BUGS),--bugs,--minutes $(MINUTES)) --seed $(SEED) $(if $(BUG),--bug "$(BUG)")

interrupts: $(VENV)/test-installed
	$(RUN) -m tests.soak.interrupts $(if $(BUGS),--bugs,--minutes $(MINUTES)) --seed $(SEED) $(if $(BUG),--bug "$(BUG)")

arrow: $(VENV)/test-installed
	$(RUN) -m tests.soak.arrow --minutes $$(($(MINUTES) / 2)) --seed $(SEED)
	$(RUN) -m tests.soak.arrow --spark --minutes $$(($(MINUTES) / 4)) --seed $(SEED)
	$(RUN) -m tests.soak.arrow --spark --tier --minutes $$(($(MINUTES) / 4)) --seed $(SEED)
	$(RUN) -m tests.soak.arrow --bugs

latest: $(VENV)/test-installed
	$(RUN) -m tests.soak.latest --histories $(HISTORIES) --seed $(SEED)

several: $(VENV)/test-installed
	$(RUN) -m tests.soak.several --histories $(HISTORIES) --seed $(SEED)

interop: $(VENV)/test-installed check-java
	BK_SPARK_INTEROP=1 $(RUN) -m pytest tests/interop --timeout 3600 $(PYTEST_ARGS)

apache-tests: $(VENV)/test-installed check-java
	$(RUN) -m tests.apache_suite $(CLASS) $(ARGS)

pulsar: $(VENV)/test-installed check-java
	$(RUN) -m tests.soak.pulsar --messages $(MESSAGES) --minutes $(MINUTES) --seed $(SEED) $(if $(KEEP),--keep $(KEEP))

topics: $(VENV)/test-installed check-java
	$(RUN) -m tests.soak.topics --messages $(MESSAGES) --reads $(READS) $(if $(filter command,$(origin KILLS)),--kills $(KILLS)) $(if $(KEEP),--keep $(KEEP))

bench: $(VENV)/test-installed check-java
	@mkdir -p build/benchmarks
	$(RUN) benchmarks/run_all.py --json build/benchmarks/speed.json $(if $(SMALL),--small)

bench-peers: $(VENV)/test-installed check-java
	@mkdir -p build/benchmarks
	$(RUN) -m benchmarks.peers --all --json build/benchmarks/peers.json $(if $(SMALL),--small)

scale: $(VENV)/test-installed
	@mkdir -p build/benchmarks
	$(RUN) -m benchmarks.simulated_cluster --seed $(SEED) $(if $(SMALL),--small --page build/scale.md,--page docs/scale.md --json build/benchmarks/scale.json)

bench-page: $(VENV)/test-installed
	$(RUN) -m benchmarks.speed.report $$(ls -tr build/benchmarks/*.json) --out docs --drawings build/benchmarks

proto: $(VENV)/test-installed
	$(RUN) -m grpc_tools.protoc -I. --python_out=. --pyi_out=. --grpc_python_out=. bk_spark/proto/bookie.proto
	$(RUN) -m grpc_tools.protoc -I. --python_out=. --pyi_out=. bk_spark/proto/ledger_metadata.proto bk_spark/proto/under_replication.proto bk_spark/proto/apache_wire.proto bk_spark/proto/pulsar.proto

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis simulation-failures

$(VENV)/made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	  || { echo "bk_spark needs Python 3.11 or newer as '$(PYTHON)': install it, or name one with 'make PYTHON=python3.12 ...'"; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
	  || { echo "'$(PYTHON) -m venv' does not work: install your system's package for it, on Debian python3-venv"; exit 1; }
	@touch $@

# What a user installs; again after every change, for `make demo` shows the installed package.
$(VENV)/installed: $(VENV)/made $(SOURCES)
	$(RUN) -m pip install --quiet --disable-pip-version-check .
	@rm -f $(VENV)/test-installed
	@touch $@

# The checkout itself, and what the tests need. A path entry, because Spark finds formats only on real paths.
$(VENV)/test-installed: $(VENV)/made setup.cfg pyproject.toml
	$(RUN) -m pip install --quiet --disable-pip-version-check --config-settings editable_mode=compat -e '.[test]'
	@rm -f $(VENV)/installed
	@touch $@

$(VENV)/spark.jsa: $(VENV)/test-installed | check-java $(VENV)/byte-code
	$(RUN) -m tests.class_archives $(VENV)

$(VENV)/byte-code: $(VENV)/test-installed
	$(RUN) -m tests.spark.byte_code $@

check-java:
	@"$${JAVA_HOME:+$$JAVA_HOME/bin/}java" -version 2>&1 | grep -Eq 'version "(1[7-9]|[2-9][0-9])' \
	  || { echo "Spark and ZooKeeper need Java 17 or newer: install it, on Debian openjdk-17-jre-headless, or set JAVA_HOME"; exit 1; }
