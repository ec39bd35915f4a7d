package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"example.org/mta/mta/config"
	"example.org/mta/operator/api"
)

// find returns where the relay is. That takes little of the configuration, and none of what may be
// wrong in it: see [config.Find]. What the file doesn't say, or who may not read it, is told by
// what the relay itself has written in a well-known place.
func (c *cli) find() (config.Whereabouts, error) {
	path := c.configPath()
	if path == "" {
		w := config.DefaultWhereabouts()
		if known, ok := c.announced(); ok && !exists(w.Socket) {
			w = known
		}
		return w, nil
	}
	w, err := config.Find(path, c.env)
	switch {
	case err == nil && w.Socket != "" && w.DataDir != "":
		return w, nil
	case err != nil && !errors.Is(err, fs.ErrPermission):
		return w, fmt.Errorf("reading the configuration: %w", err)
	}
	known, ok := c.announced()
	switch {
	case !ok && err != nil:
		return w, fmt.Errorf("reading the configuration: %w", err)
	case !ok:
		return w, nil
	}
	w.Hostname = cmp.Or(w.Hostname, known.Hostname)
	w.DataDir = cmp.Or(w.DataDir, known.DataDir)
	w.Socket = cmp.Or(w.Socket, known.Socket)
	w.Accounting = cmp.Or(w.Accounting, known.Accounting)
	if err != nil {
		w.SMTP = known.SMTP
	}
	return w, nil
}

// announced gives what the first relay in a well-known place says.
func (c *cli) announced() (config.Whereabouts, bool) {
	for _, dir := range c.wellKnown {
		if w, err := config.Announced(dir); err == nil {
			return w, true
		}
	}
	return config.Whereabouts{}, false
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// client gives the way to the running relay.
func (c *cli) client() (*api.Client, error) {
	if c.socketFlag != "" {
		return api.NewClient(c.socketFlag), nil
	}
	hint := "to do without the file, say where the control socket is: --socket"
	if c.configFlag == "" && c.env("MTA_CONFIG") != "" {
		hint = "MTA_CONFIG names the file; " + hint
	}
	w, err := c.find()
	if err != nil {
		return nil, hinted{err, hint}
	}
	if w.Socket == "" {
		return nil, hinted{fmt.Errorf("%s: the place of the control socket depends on an environment variable that is not set", c.configPath()), hint}
	}
	return api.NewClient(w.Socket), nil
}
