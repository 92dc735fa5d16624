#!/bin/sh
# Bring the servers that the benchmarks compare with: peers.sh DIRECTORY
#
# Redis and RabbitMQ come from apt-get, the jars of Apache Kafka from Maven into DIRECTORY/kafka,
# those of Spark's own Kafka connector into DIRECTORY/spark-kafka. NATS comes with the development dependencies. What cannot be had is said in one line each.
set -eu

directory=$1
kafka_version=4.3.1
# That of pyspark: no other version works with it.
spark_version=4.3.0

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

# Jars of an artifact and of all it needs: bring_jars NAME GROUP ARTIFACT VERSION FOLDER
bring_jars() {
    [ -d "$directory/$5" ] && return 0
    if ! has java || ! has mvn; then
        echo "the jars of $1 need java and mvn: no comparison with it"
        return 0
    fi
    echo "Bringing $1 $4 with mvn"
    work="$directory/$5.work"
    rm -rf "$work"
    mkdir -p "$work" "$(dirname "$directory/$5")"
    cat >"$work/pom.xml" <<POM
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>local</groupId>
  <artifactId>jars</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>$2</groupId>
      <artifactId>$3</artifactId>
      <version>$4</version>
      <exclusions>
        <!-- What comes with pyspark. -->
        <exclusion><groupId>org.apache.hadoop</groupId><artifactId>*</artifactId></exclusion>
      </exclusions>
    </dependency>
  </dependencies>
</project>
POM
    # Moved into place whole, so that an interrupted download is done again.
    if mvn --quiet --batch-mode --file "$work/pom.xml" dependency:copy-dependencies \
        -DoutputDirectory=libs -DincludeScope=runtime >"$work/mvn.log" 2>&1; then
        mv "$work/libs" "$directory/$5"
        rm -rf "$work"
    else
        echo "the jars of $1 cannot be had: no comparison with it ($work/mvn.log)"
    fi
}

bring redis-server
bring rabbitmq-server
bring_jars "Apache Kafka" org.apache.kafka kafka_2.13 "$kafka_version" kafka/libs
bring_jars "Spark's Kafka connector" org.apache.spark spark-sql-kafka-0-10_2.13 "$spark_version" \
    spark-kafka
