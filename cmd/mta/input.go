package main

import (
	"io"
	"os"
)

// input opens the file that an argument names, where "-" is standard input. Messages call it shown.
func (c *cli) input(name string) (in io.ReadCloser, shown string, err error) {
	if name == "-" {
		return io.NopCloser(c.in), "standard input", nil
	}
	f, err := os.Open(name)
	return f, name, err
}

// readInput reads all of what an argument names.
func (c *cli) readInput(name string) (content []byte, shown string, err error) {
	in, shown, err := c.input(name)
	if err != nil {
		return nil, shown, err
	}
	defer in.Close()
	content, err = io.ReadAll(in)
	return content, shown, err
}
