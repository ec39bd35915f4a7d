//go:build !man

package main

import "github.com/spf13/cobra"

func forPackagers(*cli) []*cobra.Command { return nil }
