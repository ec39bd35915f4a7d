package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestImage builds the container image of this machine's architecture and runs it by contrib/image/check: read-only
// root, no capability, an unknown user, TERM under load.
func TestImage(t *testing.T) {
	parallel(t)
	needRoot(t)
	need(t, "buildah", "crun", "jq", "curl", "unshare", "nsenter")
	if out, err := exec.Command("unshare", "--net", "--mount", "--pid", "--fork", "true").CombinedOutput(); err != nil {
		forbidden(t, fmt.Sprintf("this machine forbids namespaces: %v: %s", err, out))
	}
	dir := scratch(t)
	build := exec.Command("../contrib/image/build", dir, "e2e")
	build.Env = append(os.Environ(), "ARCHES="+runtime.GOARCH)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the image: %v\n%s", err, lastLines(string(out), 40))
	}
	check := exec.Command("../contrib/image/check", filepath.Join(dir, "mta.oci.tar"))
	check.Env = append(os.Environ(), "ARCH="+runtime.GOARCH, "LOAD_SECONDS=4")
	out, err := check.CombinedOutput()
	if err != nil {
		t.Fatalf("contrib/image/check: %v\n%s", err, lastLines(string(out), 40))
	}
	t.Log(lastLines(string(out), 1))
}

// TestChart runs contrib/helm/check: helm's lint, each variant against the types of Kubernetes, values that the chart
// must refuse, and whether manifests.yaml is the chart's.
func TestChart(t *testing.T) {
	parallel(t)
	check := exec.Command("../contrib/helm/check")
	check.Env = append(os.Environ(), "HELM="+need(t, "helm")[0])
	out, err := check.CombinedOutput()
	if err != nil {
		t.Fatalf("contrib/helm/check: %v\n%s", err, lastLines(string(out), 40))
	}
	if !strings.Contains(string(out), "9 variants") {
		t.Errorf("contrib/helm/check has not rendered the nine variants:\n%s", out)
	}
}
