package interop

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
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
	path := filepath.Join(s.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
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

// run runs a command in the host, which must succeed, and returns its output.
func (s scratch) run(command string, args ...string) string {
	s.t.Helper()
	out, err := s.try(command, args...)
	if err != nil {
		s.t.Fatalf("%s %s: %v\n%s", command, strings.Join(args, " "), err, out)
	}
	return out
}

// try runs a command in the host, within a bound. There is no proxy: what it
// needs is in the module cache.
func (s scratch) try(command string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, command, args...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off", "GOPROXY=off")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// dropIn copies the package with the README's recipe.
func (s scratch) dropIn(args ...string) string {
	s.t.Helper()
	return s.run(script(s.t), append([]string{s.dir}, args...)...)
}

// refusesDropIn expects the recipe to say all of the texts and to leave the host
// as it is.
func (s scratch) refusesDropIn(args []string, texts ...string) {
	s.t.Helper()
	before := s.files()
	out, err := s.try(script(s.t), append([]string{s.dir}, args...)...)
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 1 {
		s.t.Errorf("it ended with %v, want status 1", err)
	}
	for _, text := range texts {
		if !strings.Contains(out, text) {
			s.t.Errorf("it wrote %q, want %q in it", out, text)
		}
	}
	if after := s.files(); !maps.Equal(after, before) {
		s.t.Errorf("it changed the host from\n%q\nto\n%q", before, after)
	}
}

// files returns the text of every file of the host.
func (s scratch) files() map[string]string {
	s.t.Helper()
	all := map[string]string{}
	err := fs.WalkDir(os.DirFS(s.dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			all[name] = s.read(name)
		}
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return all
}

// script is the recipe's path.
func script(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("../../scripts/dropin.sh")
	if err != nil {
		t.Fatal(err)
	}
	return path
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

// A second copy replaces the first, files that there are no more included, and
// what is the host's own stays.
func TestDropIn_Again(t *testing.T) {
	s := newScratch(t, "example.com/host/pkg/tools/mcp", "")
	s.dropIn("pkg/tools/mcp")
	s.write("pkg/tools/mcp/stale.go", "package mcp\n\nvar _ = thisIsGone\n")
	sum := strings.Replace(s.run("cksum", "pkg/tools/mcp/stale.go"), "pkg/tools/mcp/", "", 1)
	s.write("pkg/tools/mcp/.dropin", s.read("pkg/tools/mcp/.dropin")+sum)
	s.write("pkg/tools/mcp/README.md", "ours\n")
	s.write("pkg/tools/host.go", "package tools\n")
	s.dropIn("pkg/tools/mcp/")
	s.works()
	s.read("pkg/tools/host.go")
	s.read("pkg/tools/mcp/README.md")
}

// A file of the host's own is neither overwritten nor deleted.
func TestDropIn_KeepsOwnFiles(t *testing.T) {
	const own = "package mcp // ours\n"
	fresh, copied := newScratch(t, dropped, ""), newScratch(t, dropped, "")
	copied.dropIn()
	for _, test := range []struct {
		name string
		host scratch
		file string
	}{
		{"a package of the same place", fresh, "internal/mcp/config.go"},
		{"a file of the same name", fresh, "internal/mcp/doc.go"},
		{"a file that was added", copied, "internal/mcp/extra.go"},
		{"a file that was changed", copied, "internal/mcp/manager.go"},
		{"a file that was changed below", copied, "internal/mcp/supervise/group.go"},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.host.t = t
			test.host.write(test.file, own)
			test.host.refusesDropIn(nil, test.file)
		})
	}
}

// The copy goes below the host's root, into its module.
func TestDropIn_Directory(t *testing.T) {
	s := newScratch(t, dropped, "")
	s.write("nested/go.mod", "module example.com/nested\n")
	if err := os.Symlink(t.TempDir(), filepath.Join(s.dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{".", "./", "..", "../other", "a/../..", "/", t.TempDir(), "a//b", "./a", "a b", "a&b"} {
		s.refusesDropIn([]string{dir}, "must be a plain path below HOST")
	}
	for _, dir := range []string{"nested", "nested/a", "link", "link/a/b"} {
		s.refusesDropIn([]string{dir}, "is not in the module")
	}
}

// The host's language version is raised only where that changes nothing.
func TestDropIn_GoVersion(t *testing.T) {
	for _, test := range []struct{ name, before, want string }{
		{"an old one", "go 1.21", ""},
		{"the one before", "go 1.25.3", ""},
		{"none", "", ""},
		{"without a patch", "go 1.26", "go 1.26.0"},
		{"the same", "go 1.26.0", "go 1.26.0"},
		{"a later patch", "go 1.26.1", "go 1.26.1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newScratch(t, dropped, "")
			s.write("go.mod", "module example.com/host\n\n"+test.before+"\n")
			if test.want == "" {
				s.refusesDropIn(nil, "needs go 1.26.0 or later", `run "go get go@1.26.0"`)
				s.run("go", "get", "go@1.26.0") // as it said
			}
			out := s.dropIn()
			if raised := strings.Contains(out, "go 1.26 is now go 1.26.0"); raised != (test.name == "without a patch") {
				t.Errorf("it wrote %q", out)
			}
			if test.want != "" && !strings.Contains(s.read("go.mod"), "\n"+test.want+"\n") {
				t.Errorf("go.mod is\n%s\nwant %s", s.read("go.mod"), test.want)
			}
		})
	}
}

// The host ends up with the later of the two versions of golang.org/x/sync, as a
// requirement of its own.
func TestDropIn_Requirement(t *testing.T) {
	here := scratch{t, "."}
	version, dir, _ := strings.Cut(strings.TrimSpace(here.run("go", "list", "-m", "-f", "{{.Version}} {{.Dir}}", "golang.org/x/sync")), " ")
	for _, test := range []struct{ name, before, want string }{
		{"none", "", version},
		{"an earlier one", "\nrequire golang.org/x/sync v0.1.0\n", version},
		{"an earlier one, indirect", "\nrequire (\n\tgolang.org/x/sync v0.1.0 // indirect\n)\n", version},
		{"the same", fmt.Sprintf("\nrequire golang.org/x/sync %s\n", version), version},
		{"the same, indirect", fmt.Sprintf("\nrequire golang.org/x/sync %s // indirect\n", version), version},
		{"a later one", "\nreplace golang.org/x/sync v0.999.0 => " + dir + "\n\nrequire golang.org/x/sync v0.999.0 // indirect\n", "v0.999.0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newScratch(t, dropped, test.before)
			s.dropIn()
			if got := s.read("go.mod"); strings.Count(got, "golang.org/x/sync "+test.want+"\n") != 1 || strings.Contains(got, "indirect") {
				t.Errorf("go.mod is\n%s\nwant golang.org/x/sync %s", got, test.want)
			}
		})
	}
}

// Success means that it builds: a version that cannot be had is no success.
func TestDropIn_Builds(t *testing.T) {
	s := newScratch(t, dropped, "\nrequire golang.org/x/sync v0.999.0\n")
	if out, err := s.try(script(t), s.dir); err == nil || !strings.Contains(out, "does not build there yet") || !strings.Contains(out, "golang.org/x/sync") {
		t.Errorf("it ended with %v and wrote %q, want a failure that says what is missing", err, out)
	}
}

// A vendor directory is the host's to update, and it is told how.
func TestDropIn_Vendor(t *testing.T) {
	s := newScratch(t, dropped, "")
	s.write("vendor/modules.txt", "")
	if out := s.dropIn(); !strings.Contains(out, `run "go mod vendor"`) {
		t.Errorf("it wrote %q, want how to go on", out)
	}
	s.run("go", "mod", "vendor")
	s.works()
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
	s.run("go", "mod", "tidy")
	s.works()
}
