package interop

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The tests of this file do not run beside others: they build, and the copied
// tests watch their own time.

// A scratch is a host's module in a directory of its own.
type scratch struct {
	t   *testing.T
	dir string
}

// newScratch makes a module with the given requirements and a main package,
// whose import of the package reads importPath.
func newScratch(t *testing.T, importPath, requirements string) scratch {
	t.Helper()
	s := scratch{t, t.TempDir()}
	main, err := os.ReadFile("testdata/host/main.go")
	if err != nil {
		t.Fatal(err)
	}
	s.write("main.go", strings.Replace(string(main), `"yagent/mcp"`, `"`+importPath+`"`, 1))
	s.write("go.mod", "module example.com/host\n\ngo 1.26.0\n"+requirements)
	return s
}

func (s scratch) write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

func (s scratch) read(name string) string {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, name))
	if err != nil {
		s.t.Fatal(err)
	}
	return string(text)
}

// run runs a command in the host, within a bound, and returns its output.
func (s scratch) run(command string, args ...string) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, command, args...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("%s %s: %v\n%s", command, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// dropIn copies the package with the README's recipe.
func (s scratch) dropIn(args ...string) {
	s.t.Helper()
	script, err := filepath.Abs("../../scripts/dropin.sh")
	if err != nil {
		s.t.Fatal(err)
	}
	s.run(script, append([]string{s.dir}, args...)...)
}

// works builds the host and runs it against a server.
func (s scratch) works() {
	s.t.Helper()
	s.run("go", "build", "./...")
	s.run("go", "vet", "./...")
	binary := filepath.Join(s.t.TempDir(), "host")
	s.run("go", "build", "-o", binary, ".")
	if got, want := s.run(binary, badserver), "server: ready — 8 tools\n{\"text\":\"hello\"}\n"; got != want {
		s.t.Errorf("the host wrote %q, want %q", got, want)
	}
}

const dropped = "example.com/host/internal/mcp"

// The copy is a package of the host's like any other, and so are its tests.
func TestDropIn_Copy(t *testing.T) {
	s := newScratch(t, dropped, "")
	s.dropIn()
	s.works()
	if out := s.run("go", "test", "-race", "-count=1", "-timeout=2m", "./..."); !strings.Contains(out, "ok  \t"+dropped+"\t") || !strings.Contains(out, "ok  \t"+dropped+"/supervise\t") {
		t.Errorf("go test wrote\n%s", out)
	}
	imports := s.run("go", "list", "-test", "-f", "{{join .Deps \"\\n\"}}", "./...")
	for line := range strings.Lines(imports) {
		if strings.HasPrefix(line, "yagent/") {
			t.Errorf("the copy still imports %s", line)
		}
	}
	if out := s.run("gofmt", "-l", "."); out != "" {
		t.Errorf("gofmt would change %s", out)
	}
}

// A second copy replaces the first, and what is the host's own stays.
func TestDropIn_Again(t *testing.T) {
	s := newScratch(t, "example.com/host/pkg/tools/mcp", "")
	s.dropIn("pkg/tools/mcp")
	s.write("pkg/tools/mcp/stale.go", "package mcp\n\nvar _ = thisIsGone\n")
	s.write("pkg/tools/host.go", "package tools\n")
	s.dropIn("pkg/tools/mcp")
	s.works()
	s.read("pkg/tools/host.go")
}

// The host ends up with the later of the two versions of golang.org/x/sync.
func TestDropIn_Requirement(t *testing.T) {
	ours, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	_, version, _ := strings.Cut(string(ours), "golang.org/x/sync ")
	version, _, _ = strings.Cut(version, "\n")
	for _, test := range []struct{ name, before, want string }{
		{"none", "", version},
		{"an earlier one", "\nrequire golang.org/x/sync v0.1.0\n", version},
		{"the same", fmt.Sprintf("\nrequire golang.org/x/sync %s\n", version), version},
		{"a later one", "\nrequire (\n\tgolang.org/x/sync v0.999.0 // indirect\n)\n", "v0.999.0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newScratch(t, dropped, test.before)
			s.dropIn()
			if got := s.read("go.mod"); strings.Count(got, "golang.org/x/sync") != 1 || !strings.Contains(got, "golang.org/x/sync "+test.want) {
				t.Errorf("go.mod is\n%s\nwant golang.org/x/sync %s", got, test.want)
			}
		})
	}
}

// A host may as well use the package where it lies.
func TestDropIn_Replace(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	s := newScratch(t, "yagent/mcp", "\nrequire yagent/mcp v0.0.0\n\nreplace yagent/mcp => "+root+"\n")
	sum, err := os.ReadFile("../../go.sum")
	if err != nil {
		t.Fatal(err)
	}
	s.write("go.sum", string(sum))
	s.works()
}
