"""What the tests share: real Harbor jobs, a running exporter, recorded sequences."""
