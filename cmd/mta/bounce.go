package main

import "github.com/spf13/cobra"

func newBounce(c *cli) *cobra.Command {
	return group("bounce", "what comes back for mail that was sent", newBounceClassify(c), newBounceUnknown(c), newBounceToken(c), newBounceList(c), newBounceShow(c))
}
