package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// volumeEnv is set in the container image. True: data_dir must be on a volume.
const volumeEnv = "MTA_REQUIRE_VOLUME"

// requireVolume refuses a data directory in the file system of the container, which ends with the container, and all
// accepted mail with it.
func (c *cli) requireVolume(dataDir string) error {
	if required, err := strconv.ParseBool(c.env(volumeEnv)); err != nil || !required || !sameMount(dataDir, "/") {
		return nil
	}
	c.printError(hinted{
		fmt.Errorf("data_dir %s is on no volume: it would be lost with the container, and all queued mail with it", dataDir),
		"mount a volume there, or set " + volumeEnv + "=false if nothing has to be kept",
	})
	return exitError(exitConfig)
}

// sameMount reports whether two directories are in one mount. For a directory that does not exist yet, the one above
// it counts. Where that isn't known, they are not.
func sameMount(a, b string) bool {
	if abs, err := filepath.Abs(a); err == nil {
		a = abs
	}
	for a != "/" {
		if _, err := os.Stat(a); err == nil {
			break
		}
		a = filepath.Dir(a)
	}
	of, ok1 := mountID(a)
	root, ok2 := mountID(b)
	return ok1 && ok2 && of == root
}
