#!/bin/sh
# Bring the servers that the benchmarks compare with: peers.sh DIRECTORY
#
# Redis and RabbitMQ come from apt-get, the jars of Apache Kafka from Maven into DIRECTORY/kafka.
# NATS comes with the development dependencies. What cannot be had is said in one line each.
set -eu

directory=$1
kafka_version=4.3.1

has() {
    command -v "$1" >/dev/null 2>&1
}

bring() {
    has "$1" && return 0
    if [ "$(id -u)" = 0 ] && has apt-get; then
        echo "Installing $1 with apt-get"
        # A service of the machine's own is not wanted: the benchmarks start what they need.
        { apt-get update && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y "$1"; } \
            >/dev/null 2>&1 || true
    fi
    has "$1" || echo "$1 is not installed: no comparison with it (apt-get install $1)"
}

bring_kafka() {
    [ -d "$directory/kafka/libs" ] && return 0
    if ! has java || ! has mvn; then
        echo "Apache Kafka's jars need java and mvn: no comparison with it"
        return 0
    fi
    echo "Bringing Apache Kafka $kafka_version with mvn"
    mkdir -p "$directory/kafka"
    cat >"$directory/kafka/pom.xml" <<POM
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>local</groupId>
  <artifactId>kafka-server</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>$kafka_version</version>
    </dependency>
  </dependencies>
</project>
POM
    # Moved into place whole, so that an interrupted download is done again.
    if mvn --quiet --batch-mode --file "$directory/kafka/pom.xml" dependency:copy-dependencies \
        -DoutputDirectory=incomplete -DincludeScope=runtime >"$directory/kafka/mvn.log" 2>&1; then
        mv "$directory/kafka/incomplete" "$directory/kafka/libs"
    else
        echo "Apache Kafka's jars cannot be had: no comparison with it ($directory/kafka/mvn.log)"
    fi
}

bring redis-server
bring rabbitmq-server
bring_kafka
