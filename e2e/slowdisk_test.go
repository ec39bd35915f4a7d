package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
)

// controlGroup limits what processes get of this machine, by cgroups of either version. It goes with
// the test.
type controlGroup struct{ procs []string }

var controlGroups atomic.Int64

// newControlGroup makes a group whose processes write at most writeRate octets a second to the file
// system of dir, have at most memory octets, and so many percent of a core; 0: any. The test is skipped where
// groups cannot be made.
func newControlGroup(t *testing.T, dir string, writeRate, memory int64, core int) *controlGroup {
	t.Helper()
	needRoot(t)
	disk, err := blockDevice(dir)
	if err != nil {
		cannot(t, err.Error())
	}
	const root = "/sys/fs/cgroup"
	name := fmt.Sprintf("mta-e2e-%d-%d", os.Getpid(), controlGroups.Add(1))
	limits := map[string]map[string]string{ // by folder
		root + "/blkio":  {"blkio.throttle.write_bps_device": fmt.Sprintf("%s %d", disk, writeRate)},
		root + "/memory": {"memory.limit_in_bytes": strconv.FormatInt(memory, 10)},
	}
	if _, err := os.Stat(root + "/cgroup.controllers"); err == nil {
		limits = map[string]map[string]string{root: {
			"io.max":     fmt.Sprintf("%s wbps=%d", disk, writeRate),
			"memory.max": strconv.FormatInt(memory, 10),
		}}
	}
	if core > 0 {
		if files := limits[root]; files != nil {
			files["cpu.max"] = fmt.Sprintf("%d 100000", core*1000)
		} else {
			limits[root+"/cpu"] = map[string]string{"cpu.cfs_quota_us": strconv.Itoa(core * 1000)}
		}
	}
	g := new(controlGroup)
	for parent, files := range limits {
		group := filepath.Join(parent, name)
		if err := os.Mkdir(group, 0o755); err != nil {
			cannot(t, "control groups: "+err.Error())
		}
		t.Cleanup(func() { os.Remove(group) })
		for file, limit := range files {
			if err := os.WriteFile(filepath.Join(group, file), []byte(limit), 0o644); err != nil {
				cannot(t, "control groups: "+err.Error())
			}
		}
		g.procs = append(g.procs, filepath.Join(group, "cgroup.procs"))
	}
	return g
}

// run is a command that runs another within the group.
func (g *controlGroup) run(argv ...string) []string {
	script := ""
	for _, procs := range g.procs {
		script += "echo $$ > " + procs + "; "
	}
	return append([]string{"sh", "-ec", script + `exec "$@"`, "sh"}, argv...)
}

// blockDevice names the disk that a file system is on, "8:0", as control groups want it: partitions
// have no limits of their own.
func blockDevice(dir string) (string, error) {
	var st syscall.Stat_t
	if err := syscall.Stat(dir, &st); err != nil {
		return "", err
	}
	major, minor := st.Dev>>8&0xfff, st.Dev&0xff|st.Dev>>12&0xfff00
	dev := fmt.Sprintf("%d:%d", major, minor)
	path, err := filepath.EvalSymlinks("/sys/dev/block/" + dev)
	if err != nil {
		return "", fmt.Errorf("%s is on no disk: %w", dir, err)
	}
	if _, err := os.Stat(path + "/partition"); errors.Is(err, os.ErrNotExist) {
		return dev, nil
	}
	whole, err := os.ReadFile(filepath.Dir(path) + "/dev")
	return strings.TrimSpace(string(whole)), err
}
