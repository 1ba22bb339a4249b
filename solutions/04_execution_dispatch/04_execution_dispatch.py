# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown] slug="title"
# # INF-EXECUTION-DISPATCH. Inference Fusion and Backend Dispatch | 推理融合与后端分派

# %% [markdown] slug="step-5"
# ## 第五步 可选实验：eager 与 torch.compile（Optional experiment）

# %% [markdown] slug="step-5-placeholder"
# <!-- [step 5] -->

# %% [markdown] slug="questions"
# ## 思考题
