// Command mta is an outbound mail relay.
package main

func main() {}
