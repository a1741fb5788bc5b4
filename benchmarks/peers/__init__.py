"""bk_spark beside what users would pick instead, fetched with Maven: Kafka with Spark's connector, and Apache BookKeeper."""
