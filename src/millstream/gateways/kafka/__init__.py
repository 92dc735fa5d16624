"""The Kafka door: Kafka's wire protocol over TCP."""
