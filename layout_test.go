package mcp

import (
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// layers says which file may import what, one group of files a line, with sets
// by their names. A file that is not here fails the test, and so does an import:
// what a file knows is decided here first.
const layers = `
	set pure = bytes cmp encoding/base64 encoding/binary encoding/json errors fmt io maps math math/bits reflect slices strconv strings unicode unicode/utf16 unicode/utf8
	set time = context sync sync/atomic time
	set os   = io/fs os os/exec path/filepath runtime syscall

	doc.go:                            nothing

	scan.go lines.go protocol.go:      pure
	status.go:                         fmt strings
	errors.go:                         pure context
	oddities.go:                       pure
	log.go:                            context log/slog

	client.go watch.go:                pure time log/slog supervise golang.org/x/sync/semaphore
	handshake.go tools.go listen.go:   pure context time
	era.go:                            pure context time supervise

	manager.go callbacks.go refresh.go: pure time log/slog supervise
	reconnect.go:                      pure time log/slog supervise math/rand/v2

	process.go:                        bytes context errors fmt io sync time strings slices os supervise
	process_unix.go process_kqueue.go: errors fmt time os
	process_linux.go:                  errors fmt time os unsafe
	process_windows.go:                crypto/rand errors fmt strings time unicode/utf16 os unsafe

	supervise/doc.go:                  nothing
	supervise/group.go:                cmp context errors fmt slices strings sync time golang.org/x/sync/errgroup
	supervise/panic.go:                fmt log/slog runtime/debug
`

// strangers are names of the package's that a file's code does not use: what it
// knows nothing of.
var strangers = map[string]string{
	"scan.go":            "Manager MCPClient newSession ServerState newSpawner",
	"lines.go":           "Manager MCPClient newSession ServerState newSpawner",
	"protocol.go":        "Manager MCPClient newSession ServerState newSpawner",
	"status.go":          "Manager MCPClient newSession DiscoveredTool",
	"client.go":          "Manager ServerConfig ManagerOptions ServerState ServerHealth defaultBackoff",
	"handshake.go":       "Manager ServerState ServerHealth processSpec newSpawner",
	"era.go":             "Manager ServerState ServerHealth processSpec newSpawner",
	"listen.go":          "Manager ServerState ServerHealth processSpec newSpawner",
	"tools.go":           "Manager ServerState ServerHealth processSpec newSpawner",
	"watch.go":           "Manager ServerState ServerHealth processSpec newSpawner",
	"process.go":         "Manager MCPClient newSession parseMessage ServerState parseID",
	"process_unix.go":    "Manager MCPClient newSession parseMessage",
	"process_linux.go":   "Manager MCPClient newSession parseMessage",
	"process_kqueue.go":  "Manager MCPClient newSession parseMessage",
	"process_windows.go": "Manager MCPClient newSession parseMessage",
	"manager.go":         "processSpec parseMessage",
	"reconnect.go":       "processSpec parseMessage newSpawner",
	"refresh.go":         "processSpec parseMessage newSpawner",
	"callbacks.go":       "processSpec parseMessage newSpawner newSession",
}

// parsed is one source file, whatever system it is built for.
type parsed struct {
	name string // with slashes, relative to the package
	fset *token.FileSet
	file *ast.File
}

// parseSources returns all Go files below this directory that belong to this
// module, tests and other systems' files too.
func parseSources(t *testing.T) []parsed {
	t.Helper()
	all, err := sources()
	if err != nil || len(all) < 20 {
		t.Fatalf("%d sources: %v", len(all), err)
	}
	return all
}

var sources = sync.OnceValues(func() (all []parsed, err error) {
	err = filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && isForeign(name):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, ".go"):
			return nil
		}
		p, err := parse(filepath.ToSlash(name), nil)
		all = append(all, p)
		return err
	})
	return all, err
})

// isForeign reports whether a directory is no part of this module.
func isForeign(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	base := filepath.Base(dir)
	return err == nil || base == "testdata" || strings.HasPrefix(base, ".")
}

// parse takes a file's text, or reads it if that is nil.
func parse(name string, text any) (parsed, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	return parsed{name, fset, file}, err
}

func (p parsed) isTest() bool { return strings.HasSuffix(p.name, "_test.go") }

// isShipped reports whether the file is part of the library.
func (p parsed) isShipped() bool {
	dir := path.Dir(p.name)
	return !p.isTest() && (dir == "." || dir == "supervise")
}

// imports maps the name under which each package is used to its path, our own
// packages' without that of the module.
func (p parsed) imports() map[string]string {
	own := reflect.TypeFor[Manager]().PkgPath()
	all := map[string]string{}
	for _, spec := range p.file.Imports {
		full, _ := strconv.Unquote(spec.Path.Value)
		short := strings.TrimPrefix(full, own+"/")
		name := path.Base(short)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		all[name] = short
	}
	return all
}

func (p parsed) at(node ast.Node) string {
	position := p.fset.Position(node.Pos())
	return fmt.Sprintf("%s:%d", p.name, position.Line)
}

// allowed reads the policy: the packages that each file may import.
func allowed(t *testing.T) map[string][]string {
	t.Helper()
	sets, files := map[string]string{}, map[string][]string{}
	for line := range strings.Lines(layers) {
		if set, packages, ok := strings.Cut(line, "="); ok {
			sets[strings.Fields(set)[1]] = packages
			continue
		}
		names, packages, _ := strings.Cut(line, ":")
		var all []string
		for word := range strings.FieldsSeq(packages) {
			if set, ok := sets[word]; ok {
				all = append(all, strings.Fields(set)...)
			}
			all = append(all, word)
		}
		for name := range strings.FieldsSeq(names) {
			files[name] = all
		}
	}
	return files
}

func TestLayout_Imports(t *testing.T) {
	policy := allowed(t)
	for _, p := range parseSources(t) {
		if !p.isShipped() {
			continue
		}
		may, known := policy[p.name]
		if !known {
			t.Errorf("%s has no place in the policy yet", p.name)
		}
		for _, imported := range p.imports() {
			if known && !slices.Contains(may, imported) {
				t.Errorf("%s must not import %s", p.name, imported)
			}
		}
		delete(policy, p.name)
	}
	for name := range policy {
		t.Errorf("the policy speaks of %s, which does not exist", name)
	}
}

func TestLayout_Strangers(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range parseSources(t) {
		seen[p.name] = true
		for _, found := range p.uses(strings.Fields(strangers[p.name])) {
			t.Error(found)
		}
	}
	for name := range strangers {
		if !seen[name] {
			t.Errorf("there is no %s", name)
		}
	}
}

// uses finds names of the package in a file's code. Fields and methods of that
// name are something else.
func (p parsed) uses(names []string) []string {
	var found []string
	members := map[*ast.Ident]bool{}
	ast.Inspect(p.file, func(node ast.Node) bool {
		if selector, ok := node.(*ast.SelectorExpr); ok {
			members[selector.Sel] = true
		}
		if ident, ok := node.(*ast.Ident); ok && !members[ident] && slices.Contains(names, ident.Name) {
			found = append(found, p.at(ident)+" uses "+ident.Name)
		}
		return true
	})
	return found
}

func TestLayout_NoHiddenGoroutines(t *testing.T) {
	spawning := 0
	for _, p := range parseSources(t) {
		if p.isTest() {
			continue
		}
		found := p.goroutines()
		if path.Dir(p.name) == "supervise" {
			spawning += len(found)
			continue
		}
		for _, where := range found {
			t.Error(where)
		}
	}
	if spawning != 1 {
		t.Errorf("supervise starts goroutines in %d places, want one", spawning)
	}
}

// hidden are functions and types of other packages that start goroutines
// without a go statement.
var hidden = []string{"time.AfterFunc", "context.AfterFunc", "os/exec.CommandContext", "sync.WaitGroup"}

// goroutines finds what starts goroutines.
func (p parsed) goroutines() []string {
	imports := p.imports()
	var found []string
	ast.Inspect(p.file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.GoStmt:
			found = append(found, p.at(node)+" has a go statement")
		case *ast.SelectorExpr:
			if pkg, ok := node.X.(*ast.Ident); ok && slices.Contains(hidden, imports[pkg.Name]+"."+node.Sel.Name) {
				found = append(found, p.at(node)+" uses "+pkg.Name+"."+node.Sel.Name)
			}
		}
		return true
	})
	return found
}

func TestLayout_Unsafe(t *testing.T) {
	for _, p := range parseSources(t) {
		if _, unsafe := p.imports()["unsafe"]; unsafe && !strings.HasPrefix(p.name, "process_") {
			t.Errorf("%s imports unsafe", p.name)
		}
	}
}

// TestLayout_MutexesSayWhatTheyGuard, in the comment above or beside them.
func TestLayout_MutexesSayWhatTheyGuard(t *testing.T) {
	all := 0
	for _, p := range parseSources(t) {
		if p.isTest() {
			continue
		}
		fields, silent := p.mutexes()
		all += fields
		for _, where := range silent {
			t.Error(where)
		}
	}
	if all < 5 {
		t.Errorf("only %d mutexes were found; the test looks in the wrong place", all)
	}
}

// mutexes counts the fields that are mutexes and finds those that do not say
// what they guard.
func (p parsed) mutexes() (fields int, silent []string) {
	ast.Inspect(p.file, func(node ast.Node) bool {
		owner, ok := node.(*ast.StructType)
		if !ok {
			return true
		}
		for _, field := range owner.Fields.List {
			if !isMutex(field.Type) {
				continue
			}
			fields++
			if comment := field.Doc.Text() + field.Comment.Text() + p.commentAbove(field); !strings.Contains(comment, "guard") {
				silent = append(silent, p.at(field)+": the mutex does not say what it guards")
			}
		}
		return true
	})
	return fields, silent
}

// commentAbove is a comment that stands right above a field or one line higher,
// as the heading of a band does.
func (p parsed) commentAbove(field *ast.Field) string {
	line := p.fset.Position(field.Pos()).Line
	for _, comment := range p.file.Comments {
		if end := p.fset.Position(comment.End()).Line; end < line && end >= line-2 {
			return comment.Text()
		}
	}
	return ""
}

func isMutex(expr ast.Expr) bool {
	if star, ok := expr.(*ast.StarExpr); ok {
		expr = star.X
	}
	selector, ok := expr.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	pkg, ok := selector.X.(*ast.Ident)
	return ok && pkg.Name == "sync" && (selector.Sel.Name == "Mutex" || selector.Sel.Name == "RWMutex")
}

// TestLayout_NoPackageState: no locks, channels, pools or once-only things that
// belong to the package, and no init. Two bubbles of testing/synctest in one
// run could not share them, and neither can two Managers.
func TestLayout_NoPackageState(t *testing.T) {
	for _, p := range parseSources(t) {
		if p.isShipped() {
			for _, where := range p.packageState() {
				t.Error(where)
			}
		}
	}
}

func (p parsed) packageState() []string {
	var found []string
	for _, decl := range p.file.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if decl.Recv == nil && decl.Name.Name == "init" {
				found = append(found, p.at(decl)+" is an init function")
			}
		case *ast.GenDecl:
			if decl.Tok == token.VAR && holdsState(decl) {
				found = append(found, p.at(decl)+" is state of the package")
			}
		}
	}
	return found
}

func holdsState(decl ast.Node) (holds bool) {
	ast.Inspect(decl, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.ChanType:
			holds = true
		case *ast.FuncLit:
			return false
		case *ast.Ident:
			holds = holds || node.Name == "sync" || node.Name == "atomic"
		}
		return true
	})
	return holds
}

// TestLayout_ModulePath: in this directory's tests the module's path stands in
// imports alone, which a host that copies the package rewrites.
func TestLayout_ModulePath(t *testing.T) {
	own := reflect.TypeFor[Manager]().PkgPath()
	for _, p := range parseSources(t) {
		if !p.isTest() || path.Dir(p.name) != "." {
			continue
		}
		for _, where := range p.mentions(own) {
			t.Error(where)
		}
	}
}

// mentions finds a module's path outside imports, in strings and comments.
func (p parsed) mentions(module string) []string {
	imports := map[*ast.BasicLit]bool{}
	for _, spec := range p.file.Imports {
		imports[spec.Path] = true
	}
	var found []string
	ast.Inspect(p.file, func(node ast.Node) bool {
		if literal, ok := node.(*ast.BasicLit); ok && !imports[literal] && strings.Contains(literal.Value, module) {
			found = append(found, p.at(literal)+" names the module")
		}
		return true
	})
	for _, comment := range p.file.Comments {
		if strings.Contains(comment.Text(), module) {
			found = append(found, p.at(comment)+" names the module")
		}
	}
	return found
}

// TestLayout_FindsWhatItForbids: the checks above are only worth something if
// they find what they look for.
func TestLayout_FindsWhatItForbids(t *testing.T) {
	for _, c := range []struct {
		text  string
		check func(parsed) []string
	}{
		{`func f() { go f() }`, parsed.goroutines},
		{`func f() { func() { if true { go f() } }() }`, parsed.goroutines},
		{`import "time"; var f = time.AfterFunc`, parsed.goroutines},
		{`import "time"; func f() { time.AfterFunc(1, f) }`, parsed.goroutines},
		{`import later "context"; func f() { later.AfterFunc(nil, f) }`, parsed.goroutines},
		{`import "os/exec"; var f = exec.CommandContext`, parsed.goroutines},
		{`import "sync"; func f() { var wg sync.WaitGroup; wg.Go(f) }`, parsed.goroutines},
		{`import "sync"; type s struct { a int; mu sync.Mutex }`, silentMutexes},
		{`import "sync"; type s struct { mu *sync.RWMutex // protects all
		}`, silentMutexes},
		{`import "sync"; func f() { var s struct { sync.Mutex }; s.Lock() }`, silentMutexes},
		{`func init() {}`, parsed.packageState},
		{`import "sync"; var pool sync.Pool`, parsed.packageState},
		{`import "sync"; var pool = &sync.Pool{}`, parsed.packageState},
		{`var c = make(chan int)`, parsed.packageState},
		{`import "sync/atomic"; var n atomic.Int64`, parsed.packageState},
		{`var s = "some/module"`, func(p parsed) []string { return p.mentions("some/module") }},
		{`// see some/module`, func(p parsed) []string { return p.mentions("some/module") }},
		{`var m *Manager`, func(p parsed) []string { return p.uses([]string{"Manager"}) }},
		{`func f() { Manager.Close(nil) }`, func(p parsed) []string { return p.uses([]string{"Manager"}) }},
	} {
		if found := c.check(parseText(t, c.text)); len(found) != 1 {
			t.Errorf("in %q it finds %q", c.text, found)
		}
	}
	for _, c := range []struct {
		text  string
		check func(parsed) []string
	}{
		{`import "time"; func f() { time.NewTimer(1) }`, parsed.goroutines},
		{`type t struct{}; func (t) AfterFunc() {}; func f(time t) { time.AfterFunc() }`, parsed.goroutines},
		{`import "sync"; type s struct { mu sync.Mutex // guards the fields below
		}`, silentMutexes},
		{`var table = map[string]int{}`, parsed.packageState},
		{`import "some/module/x"; var _ = x.X`, func(p parsed) []string { return p.mentions("some/module") }},
		{`func f(x T) { x.Manager() }`, func(p parsed) []string { return p.uses([]string{"Manager"}) }},
	} {
		if found := c.check(parseText(t, c.text)); len(found) != 0 {
			t.Errorf("in %q it finds %q", c.text, found)
		}
	}
}

func parseText(t *testing.T, text string) parsed {
	t.Helper()
	p, err := parse("x.go", "package x; "+text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func silentMutexes(p parsed) []string {
	_, silent := p.mutexes()
	return silent
}

// bodyOf returns the source of a method's body, as gofmt writes it.
func bodyOf(t *testing.T, sources []parsed, receiver, method string) string {
	t.Helper()
	for _, p := range sources {
		for _, decl := range p.file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Recv == nil || f.Name.Name != method {
				continue
			}
			if star, ok := f.Recv.List[0].Type.(*ast.StarExpr); !ok || fmt.Sprint(star.X) != receiver {
				continue
			}
			var text strings.Builder
			if err := format.Node(&text, p.fset, f.Body); err != nil {
				t.Fatal(err)
			}
			return text.String()
		}
	}
	t.Fatalf("there is no method %s.%s", receiver, method)
	return ""
}

// IsAlive is called from anywhere at any rate, so it reads its two bits and
// nothing else, however tempting.
func TestLayout_IsAliveReadsTwoBits(t *testing.T) {
	body := strings.Join(strings.Fields(bodyOf(t, parseSources(t), "MCPClient", "IsAlive")), " ")
	if want := "{ return c.running.Load() && !c.closed.Load() }"; body != want {
		t.Errorf("IsAlive is %s, want %s", body, want)
	}
}

// The parent-death signal is tied to the thread that started a child, so that
// thread must belong to the spawner for good.
func TestLayout_SpawnerKeepsItsThread(t *testing.T) {
	body := bodyOf(t, parseSources(t), "spawner", "run")
	if !strings.Contains(body, "runtime.LockOSThread()") || strings.Contains(body, "UnlockOSThread") {
		t.Errorf("the spawner does not keep its thread:\n%s", body)
	}
}
