//! Removes the code that only some configurations compile.

use syn::{
    Attribute, Expr, ImplItem, Item, Meta, Stmt, Token, TraitItem,
    punctuated::Punctuated,
    visit_mut::{self, VisitMut},
};

/// Returns `file` without the parts that need one of `conditions`.
pub fn stripped(file: &syn::File, conditions: &[&str]) -> syn::File {
    let mut file = file.clone();
    if is_gated(&file.attrs, conditions) {
        file.items.clear();
    }
    Strip { conditions }.visit_file_mut(&mut file);
    file
}

/// Returns whether an attribute limits its item to one of `conditions`, as `cfg(test)` or
/// `cfg(all(test, ...))` do for `test`.
pub fn is_gated(attributes: &[Attribute], conditions: &[&str]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args().is_ok_and(|predicate| needs(&predicate, conditions))
    })
}

/// Returns whether `predicate` can be true only if one of `conditions` holds.
fn needs(predicate: &Meta, conditions: &[&str]) -> bool {
    match predicate {
        Meta::Path(path) => conditions.iter().any(|condition| path.is_ident(condition)),
        Meta::List(list) => {
            let Ok(parts) = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)
            else {
                return false;
            };
            if list.path.is_ident("all") {
                parts.iter().any(|part| needs(part, conditions))
            } else {
                list.path.is_ident("any")
                    && !parts.is_empty()
                    && parts.iter().all(|part| needs(part, conditions))
            }
        }
        Meta::NameValue(_) => false,
    }
}

struct Strip<'c> {
    conditions: &'c [&'c str],
}

impl Strip<'_> {
    fn keeps(&self, attributes: &[Attribute]) -> bool {
        !is_gated(attributes, self.conditions)
    }
}

impl VisitMut for Strip<'_> {
    fn visit_file_mut(&mut self, file: &mut syn::File) {
        file.items.retain(|item| self.keeps(item_attributes(item)));
        visit_mut::visit_file_mut(self, file);
    }

    fn visit_item_mod_mut(&mut self, module: &mut syn::ItemMod) {
        if let Some((_, items)) = &mut module.content {
            items.retain(|item| self.keeps(item_attributes(item)));
        }
        visit_mut::visit_item_mod_mut(self, module);
    }

    fn visit_item_impl_mut(&mut self, item: &mut syn::ItemImpl) {
        item.items.retain(|item| {
            self.keeps(match item {
                ImplItem::Const(item) => &item.attrs,
                ImplItem::Fn(item) => &item.attrs,
                ImplItem::Type(item) => &item.attrs,
                ImplItem::Macro(item) => &item.attrs,
                _ => &[],
            })
        });
        visit_mut::visit_item_impl_mut(self, item);
    }

    fn visit_item_trait_mut(&mut self, item: &mut syn::ItemTrait) {
        item.items.retain(|item| {
            self.keeps(match item {
                TraitItem::Const(item) => &item.attrs,
                TraitItem::Fn(item) => &item.attrs,
                TraitItem::Type(item) => &item.attrs,
                TraitItem::Macro(item) => &item.attrs,
                _ => &[],
            })
        });
        visit_mut::visit_item_trait_mut(self, item);
    }

    fn visit_block_mut(&mut self, block: &mut syn::Block) {
        block.stmts.retain(|statement| self.keeps(statement_attributes(statement)));
        visit_mut::visit_block_mut(self, block);
    }

    fn visit_expr_match_mut(&mut self, expression: &mut syn::ExprMatch) {
        expression.arms.retain(|arm| self.keeps(&arm.attrs));
        visit_mut::visit_expr_match_mut(self, expression);
    }

    fn visit_fields_named_mut(&mut self, fields: &mut syn::FieldsNamed) {
        let named = std::mem::take(&mut fields.named);
        fields.named = named.into_iter().filter(|field| self.keeps(&field.attrs)).collect();
        visit_mut::visit_fields_named_mut(self, fields);
    }
}

/// Returns the attributes of an item.
pub fn item_attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Returns the attributes of a statement.
pub fn statement_attributes(statement: &Stmt) -> &[Attribute] {
    match statement {
        Stmt::Local(local) => &local.attrs,
        Stmt::Item(item) => item_attributes(item),
        Stmt::Macro(mac) => &mac.attrs,
        Stmt::Expr(expression, _) => expression_attributes(expression),
    }
}

/// Returns the attributes of an expression that can stand as a statement.
fn expression_attributes(expression: &Expr) -> &[Attribute] {
    match expression {
        Expr::Assign(inner) => &inner.attrs,
        Expr::Binary(inner) => &inner.attrs,
        Expr::Block(inner) => &inner.attrs,
        Expr::Call(inner) => &inner.attrs,
        Expr::ForLoop(inner) => &inner.attrs,
        Expr::If(inner) => &inner.attrs,
        Expr::Loop(inner) => &inner.attrs,
        Expr::Macro(inner) => &inner.attrs,
        Expr::Match(inner) => &inner.attrs,
        Expr::MethodCall(inner) => &inner.attrs,
        Expr::Return(inner) => &inner.attrs,
        Expr::Unsafe(inner) => &inner.attrs,
        Expr::While(inner) => &inner.attrs,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use quote::ToTokens;

    use super::*;

    fn left(text: &str, conditions: &[&str]) -> String {
        let file = syn::parse_str(text).unwrap();
        stripped(&file, conditions).to_token_stream().to_string()
    }

    #[test]
    fn test_code_is_removed_everywhere() {
        let text = "#[cfg(test)] fn dead() {}
             #[cfg(all(test, x))] mod dead { }
             mod a { #[cfg(test)] use dead; #[cfg(any(test, x))] fn live() {} }
             impl A { #[cfg(test)] fn dead() {} #[cfg(not(test))] fn live() {} }
             trait B { #[cfg(test)] fn dead(); fn live(); }
             struct C { #[cfg(test)] dead: u8, live: u8 }
             fn live() {
                 #[cfg(test)] let dead = 1;
                 #[cfg(test)] { dead }
                 #[cfg(test)] dead!();
                 match x { #[cfg(test)] 1 => dead, _ => live }
             }";
        let left = left(text, &["test"]);
        assert!(!left.contains("dead"), "{left}");
        assert_eq!(left.matches("live").count(), 6);
    }

    #[test]
    fn a_condition_may_have_alternatives() {
        let text = "#[cfg(any(test, model))] fn both() {} #[cfg(model)] fn one() {}";
        assert!(!left(text, &["test", "model"]).contains("fn"));
        assert!(left(text, &["model"]).contains("both") && !left(text, &["model"]).contains("one"));
        assert_eq!(left("#![cfg(model)] fn a() {}", &["model"]), "# ! [cfg (model)]");
    }
}
