package script

import (
	"errors"
	"strings"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/ast"
	"github.com/yuin/gopher-lua/parse"
)

// Names of functions that the compiler calls. No script can write them.
const (
	fnConcat = "\x00concat"
	fnTable  = "\x00table"
	fnIndex  = "\x00index"
)

// compile parses a script. The interpreter counts instructions but not bytes, so every place where memory
// is made in proportion to something goes through a function that counts it.
func compile(name, source string) (*lua.FunctionProto, error) {
	chunk, err := parse.Parse(strings.NewReader(source), name)
	if err != nil {
		return nil, parseError(name, source, err)
	}
	rewriteAll(chunk)
	proto, err := lua.Compile(chunk, name)
	if err != nil {
		return nil, compileError(name, err)
	}
	return proto, nil
}

func parseError(name, source string, err error) error {
	var at *parse.Error
	if !errors.As(err, &at) {
		return &Error{Name: name, Msg: firstLine(err.Error())}
	}
	if at.Pos.Line < 1 {
		return &Error{Name: name, Line: 1 + strings.Count(strings.TrimRight(source, "\n"), "\n"), Msg: "the script ends where more is expected"}
	}
	msg := at.Message
	if at.Token != "" {
		msg += " near " + at.Token
	}
	return &Error{Name: name, Line: at.Pos.Line, Msg: msg}
}

func compileError(name string, err error) error {
	var at *lua.CompileError
	if errors.As(err, &at) {
		return &Error{Name: name, Line: at.Line, Msg: at.Message}
	}
	return &Error{Name: name, Msg: firstLine(err.Error())}
}

func firstLine(s string) string { line, _, _ := strings.Cut(s, "\n"); return line }

func rewriteAll(stmts []ast.Stmt) {
	for _, s := range stmts {
		rewrite(s)
	}
}

func rewrite(s ast.Stmt) {
	switch s := s.(type) {
	case *ast.AssignStmt:
		for i := range s.Lhs {
			s.Lhs[i] = target(s.Lhs[i])
		}
		expressions(s.Rhs)
	case *ast.LocalAssignStmt:
		expressions(s.Exprs)
	case *ast.FuncCallStmt:
		s.Expr = expression(s.Expr)
	case *ast.DoBlockStmt:
		rewriteAll(s.Stmts)
	case *ast.WhileStmt:
		s.Condition = expression(s.Condition)
		rewriteAll(s.Stmts)
	case *ast.RepeatStmt:
		s.Condition = expression(s.Condition)
		rewriteAll(s.Stmts)
	case *ast.IfStmt:
		s.Condition = expression(s.Condition)
		rewriteAll(s.Then)
		rewriteAll(s.Else)
	case *ast.NumberForStmt:
		s.Init, s.Limit, s.Step = expression(s.Init), expression(s.Limit), expression(s.Step)
		rewriteAll(s.Stmts)
	case *ast.GenericForStmt:
		expressions(s.Exprs)
		rewriteAll(s.Stmts)
	case *ast.FuncDefStmt:
		rewriteAll(s.Func.Stmts)
	case *ast.ReturnStmt:
		expressions(s.Exprs)
	}
}

func expressions(list []ast.Expr) {
	for i := range list {
		list[i] = expression(list[i])
	}
}

func expression(e ast.Expr) ast.Expr {
	switch e := e.(type) {
	case *ast.AttrGetExpr:
		e.Object, e.Key = expression(e.Object), expression(e.Key)
	case *ast.TableExpr:
		return constructor(e)
	case *ast.FuncCallExpr:
		if e.Func != nil {
			e.Func = expression(e.Func)
		}
		if e.Receiver != nil {
			e.Receiver = expression(e.Receiver)
		}
		expressions(e.Args)
	case *ast.LogicalOpExpr:
		e.Lhs, e.Rhs = expression(e.Lhs), expression(e.Rhs)
	case *ast.RelationalOpExpr:
		e.Lhs, e.Rhs = expression(e.Lhs), expression(e.Rhs)
	case *ast.ArithmeticOpExpr:
		e.Lhs, e.Rhs = expression(e.Lhs), expression(e.Rhs)
	case *ast.StringConcatOpExpr:
		return call(e, fnConcat, expression(e.Lhs), expression(e.Rhs))
	case *ast.UnaryMinusOpExpr:
		e.Expr = expression(e.Expr)
	case *ast.UnaryNotOpExpr:
		e.Expr = expression(e.Expr)
	case *ast.UnaryLenOpExpr:
		e.Expr = expression(e.Expr)
	case *ast.FunctionExpr:
		rewriteAll(e.Stmts)
	}
	return e
}

// constructor makes { ... } pay for the table, before its fields.
func constructor(t *ast.TableExpr) ast.Expr {
	for _, f := range t.Fields {
		if f.Value = expression(f.Value); f.Key != nil {
			f.Key = index(t, nil, f.Key)
		}
	}
	return call(t, fnTable, t)
}

// target is what is assigned to. A new key in a table may cost as much as it is large.
func target(e ast.Expr) ast.Expr {
	if a, ok := e.(*ast.AttrGetExpr); ok {
		a.Object = expression(a.Object)
		a.Key = index(a, a.Object, a.Key)
	}
	return e
}

// index makes a key pay for what it adds to a table. An object that can be named twice without doing
// something twice is given along, so that appending costs only the element.
func index(at ast.PositionHolder, object, key ast.Expr) ast.Expr {
	if s, ok := key.(*ast.StringExpr); ok {
		return s
	}
	if object == nil || !still(object) {
		return call(at, fnIndex, expression(key))
	}
	return call(at, fnIndex, expression(key), object)
}

// still expressions do nothing but name something.
func still(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.IdentExpr:
		return true
	case *ast.AttrGetExpr:
		_, constant := e.Key.(*ast.StringExpr)
		return constant && still(e.Object)
	}
	return false
}

func call(at ast.PositionHolder, name string, args ...ast.Expr) ast.Expr {
	f := &ast.IdentExpr{Value: name}
	f.SetLine(at.Line())
	f.SetLastLine(at.LastLine())
	c := &ast.FuncCallExpr{Func: f, Args: args, AdjustRet: true}
	c.SetLine(at.Line())
	c.SetLastLine(at.LastLine())
	return c
}
